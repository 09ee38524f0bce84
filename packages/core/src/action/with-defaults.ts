/** Lays settings over their defaults; `undefined` counts as not set, so that no limit is lost by it. */
export function withDefaults<T extends object>(defaults: T, settings: Partial<T> | undefined): T {
  if (settings === undefined) return defaults;
  const set = Object.entries(settings).filter(([, value]) => value !== undefined);
  return { ...defaults, ...Object.fromEntries(set) };
}
