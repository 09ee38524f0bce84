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
export { inShortTransaction, inWritableDatabase } from './migration/in-database.js';
export { isDisconnected } from './connection/client.js';
export { sqlStateOf } from './connection/storage-error.js';
export {
  type ShardRecord,
  lockingShards,
  namedShards,
  readShards,
  recordAdopted,
  recordReleased,
} from './migration/shard-record.js';
export { type PendingMigration, type SchemaState, schemaState } from './migration/schema-check.js';
