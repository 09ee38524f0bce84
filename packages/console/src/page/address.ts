type Query = Readonly<Record<string, string>>;

/** A screen with its filters. */
export interface Address {
  /** The parts of the path, decoded. */
  readonly path: readonly string[];
  readonly query: Query;
}

/** Reads the fragment of an address, such as `#/dead-letters?handler=notify`. */
export function parseAddress(text: string): Address {
  const [path = '', query = ''] = text.replace(/^#\/?/, '').split('?', 2);
  return {
    path: path.split('/').filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** Decodes a part of an address. A link that somebody has cut off must not end the page. */
export function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a screen; filters that are not given are left out. An empty one is given: there are errors without a text. */
export function to(
  path: readonly string[],
  query: Readonly<Record<string, string | undefined>> = {},
): string {
  const given = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const search = new URLSearchParams(given).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${search === '' ? '' : `?${search}`}`;
}

/** Whether a search says which events it is about; a shard says only where they are. */
export function namesEvents(query: Readonly<Record<string, string | undefined>>): boolean {
  return Object.entries(query).some(([name, value]) => name !== 'shard' && value !== undefined);
}
