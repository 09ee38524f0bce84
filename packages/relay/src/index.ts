export { type RelayOptions, relay } from './relay.js';
export type { Relay } from './event-relay.js';
export type { RelayError, RelayState } from './relay-state.js';
export {
  type Broker,
  type BrokerMessage,
  NotTakenByBroker,
  type PublishOutcome,
  RefusedByBroker,
  publishByKey,
} from './broker.js';
export { BrokerUnavailableError, MessageRefusedError } from '@framework/core/adapter';
