export { type LogicalReplicationOptions, logicalReplication } from './logical-replication.js';
export type { EventSource, EventSourceState } from '@framework/core/adapter';
