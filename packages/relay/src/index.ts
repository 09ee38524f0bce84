export { type RelayOptions, relay } from './relay.js';
export type { Relay, RelayState } from './event-relay.js';
export type { RelayError } from './relay-errors.js';
export {
  type Broker,
  type BrokerMessage,
  NotTakenByBroker,
  type PublishOutcome,
  RefusedByBroker,
  publishByKey,
} from './broker.js';
export { BrokerUnavailableError, MessageRefusedError } from '@framework/core/adapter';
