import { computed, signal } from '@preact/signals';

type Query = Readonly<Record<string, string>>;

interface Route {
  /** The parts of the path, decoded. */
  readonly path: readonly string[];
  readonly query: Query;
}

const hash = signal(location.hash);
addEventListener('hashchange', () => (hash.value = location.hash));

/** The screen and its filters, from the address: a link to it can be sent to somebody. */
export const route = computed((): Route => parse(hash.value));

function parse(text: string): Route {
  const [path = '', query = ''] = text.replace(/^#\/?/, '').split('?', 2);
  return {
    path: path.split('/').filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** A link that somebody has cut off must not end the page. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a screen; filters that are empty are left out. */
export function to(
  path: readonly string[],
  query: Readonly<Record<string, string | undefined>> = {},
): string {
  const given = Object.entries(query).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const search = new URLSearchParams(given).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${search === '' ? '' : `?${search}`}`;
}

/** Goes to a screen; back leads to the present one. */
export function go(address: string): void {
  location.hash = address;
}

/** Replaces filters of the present screen; the next page of something belongs to the filters before, so it is left out. */
export function refine(changes: Readonly<Record<string, string | undefined>>): void {
  const { path, query } = route.value;
  go(to(path, { ...query, after: undefined, ...changes }));
}
