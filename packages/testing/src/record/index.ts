// In the order in which a datum flows: a call, the record of all calls, and what the databases are compared with.
export {
  type CallOutcome,
  CallRecorder,
  type CallRecorderOptions,
  type RecordedCall,
  type Verdict,
} from './call-recorder.js';
export { DeliveryRecorder, type DeliveryRecord } from './delivery-record.js';
export { type RecordCheck, type RecordState, checkRecord } from './check-record.js';
export type { RecordedAction, RecordedEvent, Rows } from './database-record.js';
