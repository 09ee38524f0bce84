import type { MigrateMode } from '@framework/core';
import type { OperatorCommands } from '../migration/operator-commands.js';

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
   * Shown by PostgreSQL in `pg_stat_activity`; the connections of delivery add ` delivery`, ` leases` and ` hints`. Default
   * `framework`.
   */
  readonly applicationName?: string;
  /**
   * How many connections the delivery of each database has for itself at most, besides one that renews its leases and one that
   * listens for hints; 1 to 1,000. Default 2.
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
