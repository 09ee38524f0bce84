import { ConfigurationError, type ShardIdentifier } from '@framework/core';
import type { DatabaseConfig, MigrateMode } from '@framework/core/adapter';

/** A condition that operators should know about although no error reports it. */
export interface PostgresWarning {
  /**
   * `connection-leak`: a connection was not returned within `leak-detection-threshold`. `pooler-settings`: a server
   * setting is missing behind a pooler. `new-epoch`: the database now runs on another server. `log-index`: the log's
   * index from an earlier release was not replaced. `not-ready`: the database cannot be opened; reported once per
   * reason, not per attempt. `newer-schema`: the database has migrations that the code does not know. `log-partitions`:
   * the role may not create partitions of the log.
   */
  readonly kind:
    | 'connection-leak'
    | 'pooler-settings'
    | 'new-epoch'
    | 'log-index'
    | 'not-ready'
    | 'newer-schema'
    | 'log-partitions';
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
export function assertUrlParameters({ address, path }: DatabaseConfig): void {
  const { searchParams, hash } = new URL(address);
  const messages = [...new Set(searchParams.keys())].flatMap(
    (name) => faultOf(name, searchParams.getAll(name)) ?? [],
  );
  if (hash !== '')
    messages.push('has a #, and everything after it would be ignored: write %23 for a literal #');
  if (messages.length === 0) return;
  throw new ConfigurationError(messages.map((message) => ({ path: `${path}.jdbc-url`, message })));
}

function faultOf(name: string, [value = '', ...others]: readonly string[]): string | undefined {
  const values = urlParameters.get(name);
  if (!urlParameters.has(name)) {
    if (value === '')
      return 'has an unknown parameter without a value: write a literal & in a password as %26';
    const shown = name.slice(0, namesShownMax);
    return `has the parameter ${shown}, which would be ignored: did you mean ${nearest(shown)}? Correct it or remove it`;
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

function nearest(name: string): string {
  const distances = [...urlParameters.keys()].map((known) => ({
    known,
    distance: editDistance(name.toLowerCase(), known),
  }));
  return distances.reduce((best, each) => (each.distance < best.distance ? each : best)).known;
}

/**
 * The edit distance: how many characters must be inserted, deleted or replaced.
 *
 * @see https://en.wikipedia.org/wiki/Wagner%E2%80%93Fischer_algorithm
 */
function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_unused, index) => index);
  for (const character of one) {
    const next = [(row[0] ?? 0) + 1];
    for (let index = 0; index < other.length; index++) {
      const replaced = (row[index] ?? 0) + (character === other[index] ? 0 : 1);
      next.push(Math.min(replaced, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

/** The commands that error messages suggest to operators of the application. */
export interface OperatorCommands {
  /** The command that applies migrations, such as `npm run migrate`. Default: a call of `migrateShards`. */
  readonly migrate?: string;
  /** The command that lets the configured databases hold these shards. Default: a call of `adoptShards`. */
  readonly adopt?: (shards: readonly ShardIdentifier[]) => string;
}

/** The default commands: calls of this package's functions. */
export const defaultCommands: Required<OperatorCommands> = {
  migrate: 'migrateShards(sharding, migrationsFolder)',
  adopt: (shards) => {
    const list = shards.map(({ group, member }) => `ShardIdentifier.of(${group}, ${member})`);
    return `adoptShards(sharding, [${list.join(', ')}])`;
  },
};
