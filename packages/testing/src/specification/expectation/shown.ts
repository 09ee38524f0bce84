/** A value as a difference shows it: what writes itself as JSON by one short text, such as `Big 25.5`. */
export function shown(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || value instanceof Date) return value;
  if (Array.isArray(value)) return value.map(shown);
  const prototype: unknown = Object.getPrototypeOf(value);
  const isPlain = prototype === Object.prototype || prototype === null;
  if (!isPlain && 'toJSON' in value) return `${value.constructor.name} ${textOf(value)}`;
  const fields = Object.entries(value).map(([field, each]) => [
    field,
    { value: shown(each), enumerable: true },
  ]);
  return Object.create(prototype as object | null, Object.fromEntries(fields) as PropertyDescriptorMap);
}

function textOf(value: object): string {
  const json: unknown = JSON.parse(JSON.stringify(value));
  return typeof json === 'string' ? json : JSON.stringify(json);
}
