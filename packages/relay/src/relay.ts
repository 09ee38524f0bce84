import { FrameworkError } from '@framework/core';
import {
  BrokerUnavailableError,
  type EventSource,
  type EventSourceState,
  MessageRefusedError,
  type Observe,
  type Observer,
  observeWith,
} from '@framework/core/adapter';
import {
  type BatchEventHandler,
  type EventEnvelope,
  type EventFailure,
  type EventHandlerOptions,
  type HandlerContext,
  PartialBatchError,
  errorText,
} from '@framework/events';

import type { Broker, BrokerMessage, PublishOutcome } from './broker.js';
import { defaultTopic, messageOf } from './message.js';

/** What a relay publishes, where, and from which event on. */
export interface RelayOptions extends Pick<
  EventHandlerOptions,
  'aliases' | 'startFrom' | 'timeoutMs' | 'source'
> {
  /** Durable and unique among the handlers and relays of the service: its cursors are stored under it. */
  readonly name: string;
  readonly broker: Broker;
  /** The topic of an event. Default: `<namespace>.<model name>`. */
  readonly topic?: (envelope: EventEnvelope<undefined>) => string;
  /** Traces and measures the calls of the broker, such as `new Telemetry()` of `@framework/telemetry`. Default: nobody does. */
  readonly observer?: Observer;
}

/** What has kept a relay from publishing. */
export interface RelayError {
  /** `broker-unavailable`: the broker did not confirm. `message-refused`: a message can never be published as it is. */
  readonly code: 'broker-unavailable' | 'message-refused';
  /** For logs: it may contain addresses, or what a webhook has quoted of a request. */
  readonly text: string;
  readonly date: Date;
}

/** How the last call of a relay's broker ended, in this process. */
export interface RelayState {
  /** `waiting`: the broker did not confirm, and the events are published again. `idle`: nothing was published yet. */
  readonly kind: 'idle' | 'publishing' | 'waiting';
  /** The last error, and when it happened; `undefined` when there was none. */
  readonly lastError: RelayError | undefined;
  /** How the relay's source is doing, for each database; empty when the log is polled. */
  readonly sources: readonly EventSourceState[];
}

/**
 * Publishes every event to a broker: at least once, those of one model in order. Pass it to a `Delivery` among the handlers.
 *
 * While the broker is down, the log keeps the events. A message that the broker refuses holds up only the later events of its
 * model; it becomes a dead letter with the broker's reason as its error.
 */
export interface Relay extends BatchEventHandler<undefined> {
  readonly name: string;
  /** Its former names. */
  readonly aliases: readonly string[];
  readonly broker: Broker;
  readonly state: RelayState;
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
export function relay({ name, broker, topic = defaultTopic, observer, ...options }: RelayOptions): Relay {
  const { messagesMax: batchMax, timeoutMs } = broker.limits ?? {};
  const limits = { ...(batchMax && { batchMax }), ...(timeoutMs && { timeoutMs }) };
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
    source: options.source,
    observe,
  });
}

class EventRelay implements Relay {
  readonly event = 'all';
  readonly name: string;
  readonly aliases: readonly string[];
  readonly broker: Broker;
  readonly #topic: (envelope: EventEnvelope<undefined>) => string;
  readonly #source: EventSource | undefined;
  readonly #observe: Observe;
  #state: Omit<RelayState, 'sources'> = { kind: 'idle', lastError: undefined };

  constructor(
    [name = '', ...aliases]: readonly string[],
    broker: Broker,
    {
      topic,
      source,
      observe,
    }: {
      readonly topic: (envelope: EventEnvelope<undefined>) => string;
      readonly source: EventSource | undefined;
      readonly observe: Observe;
    },
  ) {
    this.name = name;
    this.aliases = aliases;
    this.broker = broker;
    this.#topic = topic;
    this.#source = source;
    this.#observe = observe;
  }

  get state(): RelayState {
    return { ...this.#state, sources: this.#source?.states ?? [] };
  }

  async handleBatch(
    envelopes: readonly EventEnvelope<undefined>[],
    { signal }: HandlerContext,
  ): Promise<void> {
    const failures: EventFailure[] = [];
    const messages = this.#messagesOf(envelopes, failures);
    const outcomes = await this.#publish(messages, signal);
    const settled = new Set(failures.map(({ eventId }) => eventId));
    for (const [index, { id: eventId }] of messages.entries()) {
      const outcome = outcomes[index];
      if (outcome?.kind === 'refused')
        failures.push({ eventId, error: new MessageRefusedError(this.name, outcome.reason) });
      if (outcome?.kind !== 'held-back') settled.add(eventId);
    }
    const [first] = failures;
    if (first === undefined) return;
    this.#failed('publishing', first.error);
    const waiting = envelopes.map(({ eventId }) => eventId).filter((eventId) => !settled.has(eventId));
    throw new PartialBatchError(failures, { waiting });
  }

  /** Leaves out events whose messages cannot be made, and later ones of their models. */
  #messagesOf(
    envelopes: readonly EventEnvelope<undefined>[],
    failures: EventFailure[],
  ): readonly BrokerMessage[] {
    const failedModels = new Set<string>();
    return envelopes.flatMap((envelope) => {
      const { modelName, modelId, eventId } = envelope;
      const model = `${modelName}\0${modelId}`;
      if (failedModels.has(model)) return [];
      try {
        return [messageOf(envelope, this.#topic(envelope))];
      } catch (error) {
        failedModels.add(model);
        failures.push({ eventId, error });
        return [];
      }
    });
  }

  async #publish(messages: readonly BrokerMessage[], signal: AbortSignal) {
    try {
      const publishing = { kind: 'publish', relay: this.name, messageCount: messages.length } as const;
      const outcomes = await this.#observe(publishing, () =>
        unlessAborted(this.broker.publish(messages, signal), signal),
      );
      assertComplete(messages, outcomes);
      this.#state = { ...this.#state, kind: 'publishing' };
      return outcomes;
    } catch (error) {
      if (!isGivenUp(signal)) this.#failed('waiting', error);
      throw new BrokerUnavailableError(this.name, { cause: error });
    }
  }

  #failed(kind: 'publishing' | 'waiting', error: unknown): void {
    const code = kind === 'waiting' ? 'broker-unavailable' : 'message-refused';
    this.#state = { kind, lastError: { code, text: errorText(error), date: new Date() } };
  }
}

/** Whether a call has ended because its events belong to another process now, or delivery stops: that says nothing of the broker. */
function isGivenUp({ aborted, reason }: AbortSignal): boolean {
  return aborted && FrameworkError.find(reason)?.code !== 'handler-timeout';
}

/**
 * What is neither confirmed nor behind a refusal would otherwise count as done, and its event would be lost.
 *
 * @throws Error when the broker leaves out what became of a message, or holds one back without a reason
 */
function assertComplete(messages: readonly BrokerMessage[], outcomes: readonly PublishOutcome[]): void {
  const refused = new Set<string>();
  for (const [index, { id, key }] of messages.entries()) {
    const kind = outcomes[index]?.kind;
    if (kind === 'refused') refused.add(key);
    else if (kind !== 'confirmed' && !(kind === 'held-back' && refused.has(key)))
      throw new Error(
        `The broker has not published message ${id}, although none before it of its key was refused`,
      );
  }
}

/**
 * Waits for work, but no longer than until the signal is aborted: a broker that is silent must not keep the caller waiting.
 *
 * @throws the signal's reason once it is aborted
 */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort);
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
