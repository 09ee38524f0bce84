import type { DatabaseAddress } from '@framework/core/adapter';

const defaultPort = 5432;
const localHosts = new Set(['localhost', '[::1]', '::1']);

/**
 * Reads an address such as `postgresql://db-1:5432/global`.
 *
 * Its key ignores the case of the scheme and of the host, unless that is the directory of a socket. It includes the default port if
 * none is given, and treats the local machine's names as one. It cannot know what only a server can, such as two names of one host.
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

function keyOf(url: URL): string {
  const { host, port } = endpointOf(url);
  const parameters = new URLSearchParams(url.searchParams);
  parameters.delete('host');
  parameters.delete('port');
  parameters.sort();
  return JSON.stringify([
    hostKey(host),
    Number(port || defaultPort),
    decode(url.pathname),
    parameters.toString(),
  ]);
}

/** The directory of a socket is used unchanged, because two directories may differ only in case. */
function hostKey(host: string): string {
  if (host.startsWith('/')) return host;
  const name = host.toLowerCase().replace(/\.$/, '');
  return localHosts.has(name) ? '127.0.0.1' : name;
}

function placeOf(url: URL): string {
  const { host, port } = endpointOf(url);
  return `${host}${port === '' ? '' : `:${port}`}${decode(url.pathname)}`;
}

/** Where `pg` connects: the parameters `host` and `port` override the host and port in front of the path. */
function endpointOf({ hostname, port, searchParams }: URL): { readonly host: string; readonly port: string } {
  return { host: searchParams.get('host') ?? decode(hostname), port: searchParams.get('port') ?? port };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
