import { type Clock, systemClock } from '@framework/core';
import { type Observer, observeWith } from '@framework/core/adapter';
import type { EventEnvelope, EventHandlerOptions } from '@framework/events';

import { type Broker, timerMsMax } from './broker.js';
import { EventRelay, type Relay, handOverMs } from './event-relay.js';
import { defaultTopic } from './message.js';

const timeoutMsDefault = 30_000;

/** What a relay publishes, where, and from which event on. */
export interface RelayOptions extends Pick<EventHandlerOptions, 'aliases' | 'startFrom' | 'source'> {
  /** Durable and unique among the handlers and relays of the service: its cursors are stored under it. */
  readonly name: string;
  readonly broker: Broker;
  /** How long one call of the broker may take, in milliseconds. Default: `limits.timeoutMs` of the broker, or 30,000. */
  readonly timeoutMs?: number;
  /** The topic of an event. Default: `<namespace>.<model name>`. */
  readonly topic?: (envelope: EventEnvelope<undefined>) => string;
  /**
   * Which events are published. Others are passed over: what was passed is not published when the answer changes later. Default: all.
   */
  readonly filter?: (envelope: EventEnvelope<undefined>) => boolean;
  /** Traces and measures the calls of the broker, such as `new Telemetry()` of `@framework/telemetry`. Default: nobody does. */
  readonly observer?: Observer;
  /** Measures how long a target waits that takes nothing. Default: the computer's own clock. */
  readonly clock?: Clock;
}

/**
 * Creates a relay.
 *
 * @param options.startFrom where it starts when it is new. Default `'now'`
 * @example packages/relay/test/to-nats.ci.test.ts
 *
 * ```ts
 * const broker = nats({ servers, stream, createWith: [`${stream}.>`] });
 * const publisher = relay({ name: 'events-to-nats', broker, startFrom: 'beginning' });
 * ```
 */
export function relay({
  name,
  broker,
  topic = defaultTopic,
  filter,
  observer,
  clock = systemClock,
  timeoutMs = broker.limits?.timeoutMs ?? timeoutMsDefault,
  ...options
}: RelayOptions): Relay {
  const { messagesMax: batchMax } = broker.limits ?? {};
  if (batchMax !== undefined && !(Number.isSafeInteger(batchMax) && batchMax > 0))
    throw new Error(`limits.messagesMax of a broker must be a whole number of at least 1, not ${batchMax}`);
  // What is no duration is refused with the other options.
  const isDuration = Number.isInteger(timeoutMs) && timeoutMs > 0 && timeoutMs <= timerMsMax;
  const handlerTimeoutMs = isDuration ? Math.min(timerMsMax, timeoutMs + handOverMs) : timeoutMs;
  const limits = { ...(batchMax !== undefined && { batchMax }), timeoutMs: handlerTimeoutMs };
  // A relay does the same with each event, so that none of them can be the reason why a process dies.
  const whenever = { whenBatchFails: 'wait', whenProcessDies: 'repeat' } as const;
  // Each relay is a handler with a name of its own, and handlers are named by their classes. It is not marked for discovery, which
  // would create another one without its broker.
  class NamedRelay extends EventRelay {
    static readonly handlerName = name;
    static readonly options: EventHandlerOptions = { ...limits, ...options, ...whenever };
  }
  const observe = observeWith(observer);
  return new NamedRelay([name, ...(options.aliases ?? [])], broker, {
    topic,
    filter,
    source: options.source,
    observe,
    clock,
    timeoutMs,
  });
}
