import { ConfigurationError, type ShardIdentifier } from '@framework/core';
import type { DatabaseConfig, MigrateMode } from '@framework/core/adapter';

/** Something that operators should know, and that no error tells them. */
export interface PostgresWarning {
  /**
   * `connection-leak`: a connection was not given back within `leak-detection-threshold`. `pooler-settings`: behind a
   * pooler a setting of the server is missing. `new-epoch`: the database is on another server than before. `log-index`: the
   * index of a log of an earlier release was not replaced. `not-ready`: the database cannot be opened, and for which reason;
   * given once for each reason, not with every try. `newer-schema`: migrations are applied that the code does not
   * know. `log-partitions`: the role may not create the partitions of the log.
   */
  readonly kind:
    | 'connection-leak'
    | 'pooler-settings'
    | 'new-epoch'
    | 'log-index'
    | 'not-ready'
    | 'newer-schema'
    | 'log-partitions';
  /** Where the database stands in the configuration. */
  readonly database: string;
  readonly message: string;
  /** Where a connection was borrowed. */
  readonly stack?: string | undefined;
}

/** How the driver behaves beyond what each database's configuration says. */
export interface PostgresOptions {
  /**
   * The folder of the application's own migrations, as `drizzle-kit generate` writes it. They are applied to every
   * shard after the framework's. Default: none.
   */
  readonly migrationsFolder?: string;
  /**
   * What opening a database does about its schema. `on-start`, the default, applies the migrations that are missing, for which
   * the role owns the schema; a newer schema is warned of. `check` applies none, so that the role needs no DDL: a database
   * whose schema is older is not ready until somebody has run `migrateShards`, and one whose schema is newer until the code is
   * replaced. `off` does not look at the schema, and serves without waiting for it.
   */
  readonly migrate?: MigrateMode;
  /** What operators are told to do about a schema that is older, and about shards that a database does not hold. */
  readonly commands?: OperatorCommands;
  /**
   * Shown by PostgreSQL in `pg_stat_activity`; the connections of delivery add ` delivery`, ` leases` and ` notifications`. Default
   * `framework`.
   */
  readonly applicationName?: string;
  /**
   * How many connections the delivery of each database has for itself at most, besides one that renews its leases and one that
   * listens for notifications; 1 to 1,000. Default 2.
   */
  readonly deliveryPoolMax?: number;
  /** Called with what operators should know. Default: a warning of the process, which Node prints. */
  readonly onWarning?: (warning: PostgresWarning) => void;
}

/** Node prints it, with the process's id. */
export function printWarning({ kind, database, message, stack }: PostgresWarning): void {
  process.emitWarning(`${database}: ${message}`, {
    type: 'PostgresWarning',
    code: kind,
    ...(stack !== undefined && { detail: stack }),
  });
}

/** Has a listener who fails neither stop what he is told of, nor keep others from being told. */
export function quiet<Report>(listener: (report: Report) => unknown): (report: Report) => void {
  return (report) => {
    new Promise((resolve) => resolve(listener(report))).catch((cause: unknown) => {
      const warning = new Error('A listener of a database has failed', { cause });
      process.emitWarning(Object.assign(warning, { name: 'FrameworkWarning' }));
    });
  };
}

/** What a URL may say after its `?`; of some parameters the values, where `pg` would take any other one for none. */
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
 * Refuses parameters of a URL that `pg` would ignore: a connection must not be in plain text because of a typing error.
 *
 * @throws ConfigurationError `invalid-configuration` with every fault; values are never shown
 */
export function assertUrlParameters({ address, path }: DatabaseConfig): void {
  const { searchParams, hash } = new URL(address);
  const messages = [...new Set(searchParams.keys())].flatMap(
    (name) => faultOf(name, searchParams.getAll(name)) ?? [],
  );
  if (hash !== '') messages.push('has a #, behind which all would be ignored: write %23 where it is meant');
  if (messages.length === 0) return;
  throw new ConfigurationError(messages.map((message) => ({ path: `${path}.jdbc-url`, message })));
}

function faultOf(name: string, [value = '', ...others]: readonly string[]): string | undefined {
  const values = urlParameters.get(name);
  if (!urlParameters.has(name)) {
    if (value === '') return 'has an unknown parameter without a value: write & in a password as %26';
    const shown = name.slice(0, namesShownMax);
    return `has the parameter ${shown}, which would be ignored: the nearest known one is ${nearest(shown)}; correct it or leave it out`;
  }
  if (others.length > 0) return `has the parameter ${name} twice: keep one`;
  if (values !== undefined && !values.includes(value))
    return `has a value of ${name} that is none of ${values.join(', ')}`;
  if (name === 'host' && value.includes(','))
    return 'has several hosts: name one, such as that of a proxy before them';
  return value === '' ? `has the parameter ${name} with no value: give one or leave it out` : undefined;
}

function nearest(name: string): string {
  const distances = [...urlParameters.keys()].map((known) => ({
    known,
    distance: editDistance(name.toLowerCase(), known),
  }));
  return distances.reduce((best, each) => (each.distance < best.distance ? each : best)).known;
}

/**
 * How many characters are to be inserted, deleted or replaced.
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

/** What operators of an application do about its databases, for messages. */
export interface OperatorCommands {
  /** Applies the migrations, such as `npm run migrate`. Default: the call of `migrateShards`. */
  readonly migrate?: string;
  /** Lets the databases that are configured for shards hold them. Default: the call of `adoptShards`. */
  readonly adopt?: (shards: readonly ShardIdentifier[]) => string;
}

/** The functions of this package. */
export const defaultCommands: Required<OperatorCommands> = {
  migrate: 'migrateShards(sharding, migrationsFolder)',
  adopt: (shards) => {
    const list = shards.map(({ group, member }) => `ShardIdentifier.of(${group}, ${member})`);
    return `adoptShards(sharding, [${list.join(', ')}])`;
  },
};
