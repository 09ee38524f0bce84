import { ConfigurationException, type DatabaseDriver } from '@framework/core';
import { PgDatabase } from './pg-database.js';

/** How the driver behaves beyond what each database's configuration says. */
export interface PostgresOptions {
  /**
   * The folder of the application's own migrations, as `drizzle-kit generate` writes it. They are applied to every
   * shard after the framework's. Default: none.
   */
  readonly migrationsFolder?: string;
  /**
   * Whether opening a database applies the migrations. Default true; with false, run {@link PgDatabase.migrate}
   * from a job of its own before.
   */
  readonly migrateOnOpen?: boolean;
  /** Shown by PostgreSQL in `pg_stat_activity`. Default `framework`. */
  readonly applicationName?: string;
}

const schemes = new Set(['postgresql:', 'postgres:']);

/**
 * The driver for PostgreSQL 14 and newer, by `pg`.
 *
 * Its `open` throws ConfigurationException (`invalid-configuration`) for another database's URL or driver class.
 */
export function postgres(options: PostgresOptions = {}): DatabaseDriver {
  return {
    open: (config) => {
      if (!schemes.has(new URL(config.address).protocol)) {
        const message = 'is not a PostgreSQL URL: write jdbc:postgresql://host:5432/database';
        throw new ConfigurationException([{ path: `${config.path}.jdbc-url`, message }]);
      }
      if (config.driverClassName !== undefined && config.driverClassName !== 'org.postgresql.Driver') {
        const message = 'names another driver than org.postgresql.Driver: correct it or leave it out';
        throw new ConfigurationException([{ path: `${config.path}.driver-class-name`, message }]);
      }
      return new PgDatabase(config, options);
    },
  };
}
