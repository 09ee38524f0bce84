/** A database's address, without credentials. */
export interface DatabaseUrl {
  /** For example `postgresql://db-1:5432/global?sslmode=require`. */
  readonly address: string;
  readonly username: string | undefined;
  readonly password: Secret | undefined;
}

const credentials = ['user', 'password'] as const;
const portMax = 65_535;

/**
 * Parses `jdbc:postgresql://…` and `postgres://…` alike, and removes the credentials from the address.
 *
 * @returns the address and the credentials, or a text that says what is wrong, without any part of the URL
 */
export function parseDatabaseUrl(text: string): DatabaseUrl | string {
  if (namesSeveralHosts(text)) {
    return 'names several hosts: give one, such as a name that always leads to the primary (DNS, a virtual address, a proxy)';
  }
  const url = urlOf(text);
  // Unescaped credentials would end up in the path and be shown. So the path must be one name without `@`.
  if (url === null || !/^\/[^/@]+$/.test(url.pathname))
    return 'is not a database URL: write jdbc:postgresql://host:5432/database';
  if (/[;=&]/.test(url.pathname)) {
    return 'has ; = or & in the name of the database: write parameters after a ?, or these characters as %3B, %3D and %26';
  }
  if (!isEscaped(url.hostname) || !isEscaped(url.pathname))
    return 'has a % that is not an escape: write %25 for a literal %';
  const port = url.searchParams.get('port') || url.port;
  if (port !== '' && !(/^\d+$/.test(port) && Number(port) >= 1 && Number(port) <= portMax))
    return `has an invalid port: use 1 to ${portMax}`;
  const fault = credentials.map((name) => parameterIssue(name, url.searchParams.getAll(name))).find(Boolean);
  return fault ?? databaseUrlOf(url);
}

function databaseUrlOf(url: URL): DatabaseUrl {
  const username = decode(url.username) ?? url.searchParams.get('user') ?? undefined;
  const password = decode(url.password) ?? url.searchParams.get('password') ?? undefined;
  url.username = '';
  url.password = '';
  for (const name of credentials) url.searchParams.delete(name);
  return { address: url.href, username, password: password === undefined ? undefined : new Secret(password) };
}

/** Whether a URL lists several hosts, as JDBC and libpq allow. */
export function namesSeveralHosts(text: string): boolean {
  return /^(jdbc:)?[a-z]+:\/\/([^/?#]*@)?[^/?#@]*,[^/?#@]*([/?#]|$)/i.test(text);
}

function urlOf(text: string): URL | null {
  return URL.parse(text.replace(/^jdbc:/, ''));
}

function parameterIssue(name: string, values: readonly string[]): string | undefined {
  if (values.length > 1) return `has the parameter ${name} more than once: keep one`;
  return values[0] === ''
    ? `has the parameter ${name} without a value: give one or remove the parameter`
    : undefined;
}

function isEscaped(part: string): boolean {
  try {
    decodeURIComponent(part);
    return true;
  } catch {
    return false;
  }
}

function decode(part: string): string | undefined {
  if (part === '') return undefined;
  return isEscaped(part) ? decodeURIComponent(part) : part;
}

const hidden = '******';

/** A text that is never shown in a log, an error or JSON. Only {@link Secret.reveal} returns it. */
export class Secret {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  /** Returns the text, for the one place that needs it. */
  reveal(): string {
    return this.#text;
  }

  /** Asterisks in place of the text. */
  toString(): string {
    return hidden;
  }

  /** Asterisks in place of the text. */
  toJSON(): string {
    return hidden;
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return hidden;
  }
}
