/** Something that operators should know, and that no error tells them. */
export interface PostgresWarning {
  /**
   * `connection-leak`: a connection was not given back within `leak-detection-threshold`. `pooler-settings`: behind a
   * pooler a setting of the server is missing. `new-epoch`: the database is on another server than before. `log-index`: the
   * index of a log of an earlier release was not replaced.
   */
  readonly kind: 'connection-leak' | 'pooler-settings' | 'new-epoch' | 'log-index';
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
   * Whether opening a database applies the migrations. Default true; with false, run `migrateShards` from a job of
   * its own before.
   */
  readonly migrateOnOpen?: boolean;
  /**
   * Shown by PostgreSQL in `pg_stat_activity`; the connections of delivery add ` delivery` and ` hints`. Default
   * `framework`.
   */
  readonly applicationName?: string;
  /**
   * How many connections the delivery of each database has for itself at most, besides the one that listens for hints;
   * 1 to 1,000. Default 2.
   */
  readonly deliveryPoolMax?: number;
  /** Is told of what operators should know. Default: a warning of the process, which Node prints. */
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
