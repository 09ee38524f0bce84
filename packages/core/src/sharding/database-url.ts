import { Secret } from './secret.js';

/** A database's address, without credentials. */
export interface DatabaseUrl {
  /** Such as `postgresql://db-1:5432/global?sslmode=require`. */
  readonly address: string;
  readonly username: string | undefined;
  readonly password: Secret | undefined;
}

/**
 * Reads `jdbc:postgresql://…` and `postgres://…` alike, and takes the credentials out of it.
 *
 * @returns `undefined` when the text is not a URL with a scheme, `//` and a database. Credentials that are not
 * escaped would end up in the path and be shown, so a path is one name without `@`.
 */
export function parseDatabaseUrl(text: string): DatabaseUrl | undefined {
  const url = URL.parse(text.replace(/^jdbc:/, ''));
  if (url === null || !/^\/[^/@]+$/.test(url.pathname)) return undefined;
  const username = decode(url.username) ?? url.searchParams.get('user') ?? undefined;
  const password = decode(url.password) ?? url.searchParams.get('password') ?? undefined;
  url.username = '';
  url.password = '';
  url.searchParams.delete('user');
  url.searchParams.delete('password');
  return { address: url.href, username, password: password === undefined ? undefined : new Secret(password) };
}

/** Whether a URL lists hosts, as JDBC and libpq allow. */
export function namesSeveralHosts(text: string): boolean {
  return /^(jdbc:)?[a-z]+:\/\/([^/?#]*@)?[^/?#@]*,[^/?#@]*([/?#]|$)/i.test(text);
}

/** The host and the name of the database of an address, such as `db-1:5432/global`, for messages. */
export function databasePlace(address: string): string {
  const url = URL.parse(address);
  if (url === null) return address;
  const host = url.searchParams.get('host') ?? url.hostname;
  const port = url.searchParams.get('port') ?? url.port;
  return `${host}${port === '' ? '' : `:${port}`}${decode(url.pathname) ?? ''}`;
}

const defaultPort = '5432';
const localHosts = new Set(['localhost', '[::1]']);

/**
 * The same text for addresses that lead to the same place: in scheme and host case does not count, a port left out is the
 * default one, and this machine has several names. What only a server can tell, such as another name of a host, counts.
 */
export function comparableAddress(address: string): string {
  const url = URL.parse(address);
  if (url === null) return address;
  const isPostgres = url.protocol === 'postgres:' || url.protocol === 'postgresql:';
  if (!isPostgres) return address;
  const name = decodeURIComponent(url.hostname).toLowerCase().replace(/\.$/, '');
  const host = localHosts.has(name) ? '127.0.0.1' : name;
  url.searchParams.sort();
  return `${host}:${url.port || defaultPort}${url.pathname}${url.search}`;
}

function decode(part: string): string | undefined {
  if (part === '') return undefined;
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
