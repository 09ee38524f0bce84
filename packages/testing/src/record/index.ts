// In the order in which data flows: a call, the record of all calls, and the database records to compare with.
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
