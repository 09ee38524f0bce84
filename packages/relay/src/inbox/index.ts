// For services that receive events: needs core, but neither a broker's client nor the packages of the service that publishes.
export {
  EventDecoder,
  type EventDecoderOptions,
  type BrokerDelivery,
  type ReceivedEvent,
} from './event-decoder.js';
export { type MessageHeaders, attributesOf } from './message-attributes.js';
export { Inbox, type InboxOptions, type InboxQuery, type RowCount } from './inbox.js';
export { type InboxDialect, type InboxTable, inboxTable } from './inbox-sql.js';
export { UnknownEventTypeError, UnreadableEventError, UnreadableMessageError } from '@framework/core/adapter';
