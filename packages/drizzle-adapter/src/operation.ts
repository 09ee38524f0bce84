// For programs of operators, which look at databases without opening them as a process of the service does.
export { connectionSettings } from './connection/connection-pool.js';
export { databasePlace, parsePostgresAddress } from './connection/postgres-address.js';
export { notReadyError } from './connection/not-ready-error.js';
export {
  HistoryQuestion,
  type PreparedSession,
  type ServerSession,
  prepareSession,
} from './connection/server-session.js';
export { type ShardNotes, shardNotes } from './migration/held-shards.js';
export { type PendingMigration, type SchemaState, schemaState } from './migration/schema-check.js';
export {
  type DatabaseRole,
  type Privileges,
  type TablePrivilege,
  frameworkTables,
} from './migration/role-privileges.js';
