export { type Relay, type RelayError, type RelayOptions, type RelayState, relay } from './relay.js';
export {
  type Broker,
  type BrokerMessage,
  NotTakenByBroker,
  type PublishOutcome,
  RefusedByBroker,
  publishByKey,
} from './broker.js';
export { BrokerUnavailableError, MessageRefusedError } from '@framework/core/adapter';
