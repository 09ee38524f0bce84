import type { DatabaseAddress } from '@framework/core/adapter';

const defaultPort = '5432';
const localHosts = new Set(['localhost', '[::1]']);

/**
 * Reads an address such as `postgresql://db-1:5432/global`.
 *
 * Its key ignores the case of scheme and host, fills in the default port, and maps the local machine's names to one. It cannot
 * tell what only a server can, such as two names of one host.
 */
export function parsePostgresAddress(address: string): DatabaseAddress {
  const url = new URL(address);
  return { key: keyOf(url), place: placeOf(url) };
}

/** The host and database name of an address, such as `db-1:5432/global`, for messages. */
export function databasePlace(address: string): string {
  return placeOf(new URL(address));
}

/** The database name of an address, such as `global`. */
export function databaseName(address: string): string {
  return decode(new URL(address).pathname.slice(1));
}

function keyOf({ hostname, port, pathname, searchParams }: URL): string {
  const name = decode(hostname).toLowerCase().replace(/\.$/, '');
  const host = localHosts.has(name) ? '127.0.0.1' : name;
  const parameters = new URLSearchParams(searchParams);
  parameters.sort();
  return `${host}:${port || defaultPort}${pathname}?${parameters.toString()}`;
}

function placeOf({ hostname, port, pathname, searchParams }: URL): string {
  const host = searchParams.get('host') ?? hostname;
  const own = searchParams.get('port') ?? port;
  return `${host}${own === '' ? '' : `:${own}`}${decode(pathname)}`;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
