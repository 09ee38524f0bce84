import { ConfigurationError, type ShardIdentifier } from '@framework/core';
import { type DatabaseConfig, type MigrateMode, nearestName } from '@framework/core/adapter';

/** A condition that operators should know about although no error reports it. */
export interface PostgresWarning {
  /**
   * `connection-leak`: a connection was not returned within `leak-detection-threshold`. `pooler-settings`: a server
   * setting is missing behind a pooler. `new-epoch`: the database now runs on another server. `not-ready`: the
   * database cannot be opened; reported once per reason, not per attempt. `newer-schema`: the database has migrations
   * that the code does not know. `log-partitions`: the log lacks the partition of this month or the next one, which could
   * not be created.
   */
  readonly kind:
    'connection-leak' | 'pooler-settings' | 'new-epoch' | 'not-ready' | 'newer-schema' | 'log-partitions';
  /** The database's path in the configuration. */
  readonly database: string;
  readonly message: string;
  /** For a leak: where the connection was borrowed. */
  readonly stack?: string | undefined;
}

/** Settings of the driver beyond each database's configuration. */
export interface PostgresOptions {
  /**
   * The folder of the application's own migrations, as `drizzle-kit generate` writes it. They are applied to every
   * shard after the framework's migrations. Default: none.
   */
  readonly migrationsFolder?: string;
  /**
   * What opening a database does about its schema. `on-start`, the default, applies missing migrations, for which the
   * role must own the schema, and warns of a newer schema. `check` applies none, so the role needs no DDL privileges: a
   * database with an older schema is not ready until somebody runs `migrateShards`, and one with a newer schema is not
   * ready until the code is replaced. `off` does not check the schema at all.
   */
  readonly migrate?: MigrateMode;
  /** The commands that error messages suggest for an older schema, and for shards that a database does not hold yet. */
  readonly commands?: OperatorCommands;
  /**
   * The name that PostgreSQL shows in `pg_stat_activity`. The connections of delivery append ` delivery`, ` leases` and
   * ` notifications`. Default `framework`.
   */
  readonly applicationName?: string;
  /**
   * How many connections per database delivery may use, besides one that renews leases and one that listens for
   * notifications; 1 to 1,000. Default 2.
   */
  readonly deliveryPoolMax?: number;
  /** Called with conditions that operators should know about. Default: emits a process warning, which Node prints. */
  readonly onWarning?: (warning: PostgresWarning) => void;
}

/** Emits a process warning, which Node prints with the process id. */
export function printWarning({ kind, database, message, stack }: PostgresWarning): void {
  process.emitWarning(`${database}: ${message}`, {
    type: 'PostgresWarning',
    code: kind,
    ...(stack !== undefined && { detail: stack }),
  });
}

/** Isolates a listener: when it throws, the reporting code continues and other listeners are still called. */
export function quiet<Report>(listener: (report: Report) => unknown): (report: Report) => void {
  return (report) => {
    new Promise((resolve) => resolve(listener(report))).catch((cause: unknown) => {
      const warning = new Error('A database listener failed', { cause });
      process.emitWarning(Object.assign(warning, { name: 'FrameworkWarning' }));
    });
  };
}

/**
 * The allowed parameters of a database URL, and the allowed values of those for which `pg` would silently ignore a
 * wrong one.
 */
export const urlParameters: ReadonlyMap<string, readonly string[] | undefined> = new Map([
  ['user', undefined],
  ['password', undefined],
  ['host', undefined],
  ['port', undefined],
  ['sslmode', ['disable', 'prefer', 'require', 'verify-ca', 'verify-full', 'no-verify']],
  ['ssl', ['true', 'false', '1', '0']],
  ['sslrootcert', undefined],
  ['sslcert', undefined],
  ['sslkey', undefined],
  ['sslnegotiation', ['postgres', 'direct']],
  ['uselibpqcompat', ['true', 'false']],
  ['options', undefined],
  ['lock_timeout', undefined],
]);

const namesShownMax = 63;

/**
 * Refuses URL parameters that `pg` would ignore. Otherwise a misspelt one could leave a connection unencrypted.
 *
 * @throws ConfigurationError `invalid-configuration` with every mistake; values are never shown
 */
export function assertUrlParameters({ address, path, ssl }: DatabaseConfig): void {
  const { searchParams, hash } = new URL(address);
  const messages = [...new Set(searchParams.keys())].flatMap(
    (name) => faultOf(name, searchParams.getAll(name)) ?? [],
  );
  if (hash !== '')
    messages.push('has a #, and everything after it would be ignored: write %23 for a literal #');
  if (ssl !== undefined && [...searchParams.keys()].some((name) => /ssl|libpq/.test(name)))
    messages.push('has parameters about TLS beside the section ssl: keep one of them');
  if (messages.length === 0) return;
  throw new ConfigurationError(messages.map((message) => ({ path: `${path}.jdbc-url`, message })));
}

/** The address of a database with its section `ssl` as parameters, which `pg` reads. */
export function addressWithSsl({ address, ssl }: DatabaseConfig): string {
  if (ssl === undefined) return address;
  const url = new URL(address);
  const { mode, caFile, certFile, keyFile } = ssl;
  const parameters = { sslmode: mode, sslrootcert: caFile, sslcert: certFile, sslkey: keyFile };
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) url.searchParams.set(name, value);
  return url.href;
}

function faultOf(name: string, [value = '', ...others]: readonly string[]): string | undefined {
  const values = urlParameters.get(name);
  if (!urlParameters.has(name)) {
    if (value === '')
      return 'has an unknown parameter without a value: write a literal & in a password as %26';
    const shown = name.slice(0, namesShownMax);
    return `has the parameter ${shown}, which would be ignored: did you mean ${nearestName(shown, urlParameters.keys())}? Correct it or remove it`;
  }
  if (others.length > 0) return `has the parameter ${name} more than once: keep one`;
  if (values !== undefined && !values.includes(value))
    return `has an invalid value for ${name}: use one of ${values.join(', ')}`;
  if (name === 'host' && value.includes(','))
    return 'has several hosts: use one, such as a proxy in front of them';
  return value === ''
    ? `has the parameter ${name} without a value: give one or remove the parameter`
    : undefined;
}

/** The commands that error messages suggest to operators of the application. */
export interface OperatorCommands {
  /** The command that applies migrations, such as `npm run migrate`. Default: a call of `migrateShards`. */
  readonly migrate?: string;
  /** The command that lets the configured databases hold these shards. Default: a call of `adoptShards`. */
  readonly adopt?: (shards: readonly ShardIdentifier[]) => string;
}

/** The default commands: calls of functions. */
export const defaultCommands: Required<OperatorCommands> = {
  migrate: 'migrateShards(sharding, migrationsFolder)',
  adopt: (shards) => {
    const list = shards.map(({ group, member }) => `ShardIdentifier.of(${group}, ${member})`);
    return `adoptShards(sharding, [${list.join(', ')}]) of @framework/postgres-admin`;
  },
};
