// For packages that read the log of a database in another way than delivery does, such as by logical replication.
export { clientConfigOf, retainedColumns } from './delivery/pg-delivery-store.js';
export { ClosingClient, DatabaseSocket } from './connection/client.js';
export { EventDecoder, type LogEvent, type LogRow, byPosition } from './read/event-row.js';
export { type LogPlace, type Snapshot, formatPlace, parsePlace, presentText } from './delivery/log-place.js';
