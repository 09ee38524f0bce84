import { ConfigurationError } from '@framework/core';
import { type DatabaseDriver, type OptionNames, refuseUnknownOptions } from '@framework/core/adapter';

import { parsePostgresAddress } from './connection/postgres-address.js';
import { PgDatabase } from './pg-database.js';
import type { PostgresOptions } from './connection/postgres-options.js';

const schemes = new Set(['postgresql:', 'postgres:']);
const poolMaxMax = 1_000;
const optionNames: OptionNames<PostgresOptions> = {
  migrationsFolder: true,
  migrate: true,
  commands: true,
  applicationName: true,
  deliveryPoolMax: true,
  onWarning: true,
};

/**
 * The driver for PostgreSQL 14 and newer, using `pg`.
 *
 * Its `open` throws ConfigurationError (`invalid-configuration`) for the URL or driver class of another kind of database, and for
 * a parameter of the URL that would be ignored.
 *
 * @example apps/counter/src/open-counters.ts
 *
 * ```ts
 * const databases = openDatabases(sharding, postgres());
 * ```
 *
 * @throws ConfigurationError `invalid-configuration` when an option is unknown or out of range
 */
export function postgres(options: PostgresOptions = {}): DatabaseDriver {
  refuseUnknownOptions('postgres.', optionNames, options);
  assertPoolMax(options.deliveryPoolMax);
  return {
    parseAddress: parsePostgresAddress,
    open: (config, shards) => {
      if (!schemes.has(new URL(config.address).protocol)) {
        const message = 'is not a PostgreSQL URL: write jdbc:postgresql://host:5432/database';
        throw new ConfigurationError([{ path: `${config.path}.jdbc-url`, message }]);
      }
      if (config.driverClassName !== undefined && config.driverClassName !== 'org.postgresql.Driver') {
        const message = 'names a driver other than org.postgresql.Driver: correct it or leave it out';
        throw new ConfigurationError([{ path: `${config.path}.driver-class-name`, message }]);
      }
      return new PgDatabase({ config, shards }, options);
    },
  };
}

function assertPoolMax(value = 1): void {
  if (Number.isInteger(value) && value >= 1 && value <= poolMaxMax) return;
  const message = `is ${value}: set a whole number from 1 to ${poolMaxMax}`;
  throw new ConfigurationError([{ path: 'postgres.deliveryPoolMax', message }]);
}
