export { postgres } from './postgres.js';
export type { PostgresOptions, PostgresWarning } from './connection/postgres-options.js';
export type { OperatorCommands } from './connection/postgres-options.js';
export { type ShardMigration, migrateShards } from './migration/migrate-shards.js';
export { type PgPageRequest, PgRepository, type PgRepositoryOptions } from './pg-repository.js';
export {
  type ModelTable,
  type ValueColumnBuilder,
  bigDecimal,
  entityColumns,
  modelColumns,
  shardedId,
  textId,
} from './model-columns.js';
export type { PgTransactions } from './pg-transaction-manager.js';
