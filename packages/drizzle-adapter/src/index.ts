export { postgres } from './postgres.js';
export type { PostgresOptions, PostgresWarning } from './connection/postgres-options.js';
export type { OperatorCommands } from './connection/postgres-options.js';
export {
  type ShardAdoption,
  adoptShards,
  type ShardRelease,
  releaseShards,
  type ShardMigration,
  migrateShards,
} from './migration/shard-commands.js';
export {
  type RoleOptions,
  grantRoles,
  type RoleStatements,
  roleStatements,
} from './migration/database-roles.js';
export type { TablePrivilege } from './migration/role-privileges.js';
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
