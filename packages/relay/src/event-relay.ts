import type { Clock, ShardIdentifier } from '@framework/core';
import {
  BrokerUnavailableError,
  type DeliverableEvent,
  type EventSource,
  MessageRefusedError,
  type Observe,
} from '@framework/core/adapter';
import {
  type BatchEventHandler,
  type EventEnvelope,
  type EventFailure,
  type HandlerContext,
  PartialBatchError,
  envelopeOf,
  errorText,
} from '@framework/events';

import { type Broker, type BrokerMessage, type PublishOutcome, assertComplete } from './broker.js';
import { messageOf } from './message.js';
import { type AgainOutcome, isWanted, messagesAgain, publishInCalls } from './publish-again.js';
import { endInTime, isGivenUp, lastWordsMs } from './end-in-time.js';
import {
  MessageFailedError,
  MessageWaitsError,
  type RelayError,
  type RelayState,
  TargetWaitsError,
  codeOf,
} from './relay-state.js';
import { TargetHealth } from './target-health.js';

/**
 * Publishes every event to a broker: at least once, those of one model in order. Pass it to a `Delivery` among the handlers.
 *
 * While the broker is down, or a target takes nothing, such as a queue or a URL, the log keeps the events, and no attempt is counted. A
 * message that is not taken while others for its target are holds up only the later events of its model, and uses attempts. One that the
 * broker refuses becomes a dead letter at once, with the broker's reason as its error.
 */
export interface Relay extends BatchEventHandler<undefined> {
  readonly name: string;
  /** Its former names. */
  readonly aliases: readonly string[];
  readonly broker: Broker;
  readonly state: RelayState;
  /**
   * Whether {@link publishAgain} would publish an event, which needs its payload, because the filter may read it. An event whose filter throws
   * is wanted, and refused then. `undefined` for a relay without a filter, which wants every event.
   */
  readonly wants: ((event: DeliverableEvent, shards: readonly ShardIdentifier[]) => boolean) | undefined;
  /**
   * Publishes events again that the relay has passed, those of one model in the order given, with the limits of the broker. Neither cursors nor
   * attempts are concerned. Each message has the id of the event, and the attribute `republished` with the marker. After a call of the broker
   * in which a message is not confirmed, the rest is held back.
   *
   * @param events with their payloads: one whose payload is left out is refused, as is one whose topic or filter throws
   * @param options.shards the shards of the database from which the events are
   * @param options.marker says to consumers which order of an operator it was
   * @returns what became of each event; `left-out` if the relay's filter does not want it
   * @throws BrokerUnavailableError `broker-unavailable` when there was no answer to the first call of the broker
   */
  publishAgain(
    events: readonly DeliverableEvent[],
    options: { readonly shards: readonly ShardIdentifier[]; readonly marker: string },
  ): Promise<readonly (PublishOutcome | { readonly kind: 'left-out' })[]>;
}

/** How long batches of several models wait as a whole in an outage before each model waits by itself. */
const wholeWaitMs = 10_000;
const pingMs = 1_000;
/** How much longer delivery must wait than a call may take, so that the relay returns what became of its messages first. */
export const handOverMs = lastWordsMs + pingMs + 1_000;
/** After how many calls without an answer a batch is tried model by model: about 100 seconds if the connection is refused at once. */
const unansweredMax = 30;
const heldBack: PublishOutcome = { kind: 'held-back' };

/** Publishes what delivery hands to it, and decides what becomes of messages that are not taken. */
export class EventRelay implements Relay {
  readonly event = 'all';
  readonly name: string;
  readonly aliases: readonly string[];
  readonly broker: Broker;
  readonly wants: Relay['wants'];
  readonly #topic: (envelope: EventEnvelope<undefined>) => string;
  readonly #filter: (envelope: EventEnvelope<undefined>) => boolean;
  readonly #source: EventSource | undefined;
  readonly #observe: Observe;
  readonly #health: TargetHealth;
  readonly #clock: Clock;
  /** How long a call of the broker may take. */
  readonly #timeoutMs: number;
  #state: Omit<RelayState, 'sources'> = { kind: 'idle', lastError: undefined };

  constructor(
    [name = '', ...aliases]: readonly string[],
    broker: Broker,
    {
      topic,
      filter,
      source,
      observe,
      clock,
      timeoutMs,
    }: {
      readonly topic: (envelope: EventEnvelope<undefined>) => string;
      readonly filter: ((envelope: EventEnvelope<undefined>) => boolean) | undefined;
      readonly source: EventSource | undefined;
      readonly observe: Observe;
      readonly clock: Clock;
      readonly timeoutMs: number;
    },
  ) {
    this.name = name;
    this.aliases = aliases;
    this.broker = broker;
    this.#topic = topic;
    this.#filter = filter ?? (() => true);
    this.wants = filter && ((event, shards) => isWanted(filter, envelopeOf(event, shards)));
    this.#source = source;
    this.#observe = observe;
    this.#health = new TargetHealth(clock);
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  get state(): RelayState {
    return { ...this.#state, sources: this.#source?.states ?? [] };
  }

  async handleBatch(
    envelopes: readonly EventEnvelope<undefined>[],
    { signal }: HandlerContext,
  ): Promise<void> {
    const failures: EventFailure[] = [];
    const named = new Set<string>();
    const messages = this.#messagesOf(envelopes, failures, named);
    const outcomes = await this.#publishDue(messages, signal);
    const confirmed = new Set(messages.filter((message) => outcomes.get(message)?.kind === 'confirmed'));
    for (const { id } of confirmed) named.add(id);
    // What was not confirmed says nothing of the broker then.
    if (isGivenUp(signal)) throw new PartialBatchError([], { done: [...named] });
    const heads = firstOfEachKey(messages.filter((message) => !confirmed.has(message)));
    // What the targets have refused decides how long those wait that were not sent.
    const errors = new Map(
      heads.map((message) => [message, this.#failureOf(message, outcomes.get(message))]),
    );
    const sent = [
      ...failures.map(({ error }) => error),
      ...[...errors.values()].flatMap((error) => error ?? []),
    ];
    if (confirmed.size === 0 && heads.length > 1 && sent.every((error) => error instanceof TargetWaitsError))
      this.#throwIfOutage(heads, sent[0]);
    for (const message of heads)
      failures.push({ eventId: message.id, error: errors.get(message) ?? this.#waitOf(message) });
    const [first] = failures;
    if (first === undefined) return;
    const isWaiting =
      confirmed.size === 0 && failures.every(({ error }) => error instanceof TargetWaitsError);
    this.#note(isWaiting ? 'waiting' : 'publishing', codeOf(first.error), first.error);
    for (const { eventId } of failures) named.add(eventId);
    const waiting = envelopes.map(({ eventId }) => eventId).filter((eventId) => !named.has(eventId));
    throw new PartialBatchError(failures, { waiting });
  }

  async publishAgain(
    events: readonly DeliverableEvent[],
    { shards, marker }: { readonly shards: readonly ShardIdentifier[]; readonly marker: string },
  ): Promise<readonly AgainOutcome[]> {
    const made = messagesAgain(events, (event) => {
      const envelope = envelopeOf(event, shards);
      return this.#filter(envelope) ? messageOf(envelope, this.#topic(envelope), marker) : undefined;
    });
    const messages = made.flatMap((each) => ('kind' in each ? [] : [each]));
    const outcomes = await publishInCalls(messages, this.broker.limits, (called) =>
      this.#observe({ kind: 'publish', relay: this.name, messageCount: called.length }, () =>
        this.#publishWithin(called, new AbortController().signal, this.#timeoutMs),
      ),
    ).catch((cause: unknown) => {
      throw new BrokerUnavailableError(this.name, { cause });
    });
    return made.map((each) => ('kind' in each ? each : (outcomes.get(each) ?? heldBack)));
  }

  /** Publishes what is neither for a target that waits nor behind such a message of its key. */
  async #publishDue(
    messages: readonly BrokerMessage[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<BrokerMessage, PublishOutcome>> {
    const waiting = new Set<string>();
    const due = messages.filter((message) => {
      if (this.#health.waitOf(message.id, this.#targetOf(message)) !== undefined) waiting.add(message.key);
      return !waiting.has(message.key);
    });
    if (due.length === 0) return new Map();
    const begunMs = this.#health.begin(due.map((message) => [message.id, this.#targetOf(message)]));
    const endMs = begunMs + this.#timeoutMs;
    const outcomes = new Map<BrokerMessage, PublishOutcome>();
    const publish = async (called: readonly BrokerMessage[]): Promise<void> => {
      const leftMs = endMs - this.#clock.elapsedMs();
      if (leftMs <= 0) return;
      for (const [message, outcome] of await this.#publish(called, signal, leftMs))
        outcomes.set(message, outcome);
      const taken = called.filter((message) => outcomes.get(message)?.kind === 'confirmed');
      for (const [target, ofTarget] of Map.groupBy(taken, (message) => this.#targetOf(message)))
        this.#health.taken(
          target,
          ofTarget.map(({ id }) => id),
          begunMs,
        );
    };
    const calls = this.#callsOf(due);
    try {
      for (const called of calls) await publish(called);
    } catch (error) {
      // What gets no answer is in the second call, or alone in the first one.
      if (outcomes.size === 0 && (isGivenUp(signal) || !(await this.#waitsAlone(calls)))) throw error;
    }
    return outcomes;
  }

  /**
   * The calls that send messages. Models whose first message has failed before come behind others, because a broker that has failed some times
   * sends no more to a target. After many calls without an answer, one model goes ahead, each time another one: if that one is taken, and
   * the others get no answer again, the reason is one of theirs.
   */
  #callsOf(messages: readonly BrokerMessage[]): readonly (readonly BrokerMessage[])[] {
    const countOf = ([first]: readonly BrokerMessage[]): number =>
      first === undefined ? 0 : this.#health.failureCount(first.id);
    const models = [...Map.groupBy(messages, ({ key }) => key).values()];
    if (models.every((model) => countOf(model) === 0)) return [messages];
    models.sort((one, other) => countOf(one) - countOf(other));
    const isUnanswered = models.length > 1 && countOf(models.at(-1) ?? []) >= unansweredMax;
    return isUnanswered ? [models.slice(0, 1).flat(), models.slice(1).flat()] : [models.flat()];
  }

  /**
   * Whether the first model was sent so often without an answer that it waits by itself, and no longer holds up its slot. If there are
   * others, they wait by themselves as well, so only if the broker is there: while it is down, nothing is to be written for each model.
   */
  async #waitsAlone([called = [], ...rest]: readonly (readonly BrokerMessage[])[]): Promise<boolean> {
    const [first, ...others] = firstOfEachKey(called);
    if (first === undefined || others.length > 0) return false;
    if (this.#health.failureCount(first.id) < unansweredMax) return false;
    return rest.length === 0 || this.#isThere();
  }

  /** Whether the broker answers a ping in time. */
  async #isThere(): Promise<boolean> {
    const { promise: late, resolve } = Promise.withResolvers<boolean>();
    const cancel = this.#clock.after(pingMs, () => resolve(false));
    const ping = async (): Promise<boolean> => {
      await this.broker.ping();
      return true;
    };
    return Promise.race([ping().catch(() => false), late]).finally(cancel);
  }

  /** What became of a message that was sent and not confirmed. */
  #failureOf(message: BrokerMessage, outcome: PublishOutcome | undefined): Error | undefined {
    if (outcome?.kind === 'refused') {
      this.#health.forget(message.id);
      return new MessageRefusedError(this.name, outcome.reason);
    }
    if (outcome?.kind !== 'later') return undefined;
    const { of, reason, afterMs } = outcome;
    const failure = { isPassed: of === 'key', reason, afterMs };
    const { isToBlame, waitMs, isAsked } = this.#health.failed(message.id, this.#targetOf(message), failure);
    if (!isToBlame) return new TargetWaitsError(this.name, { afterMs: waitMs, reason });
    const text = `The broker of relay ${this.name} has not taken the message: ${reason}`;
    return isAsked ? new MessageWaitsError({ afterMs: waitMs, message: text }) : new MessageFailedError(text);
  }

  /** Why a message waits that was not sent. */
  #waitOf(message: BrokerMessage): Error {
    const { ms, reason } = this.#health.turnOf(message.id, this.#targetOf(message)) ?? {
      ms: undefined,
      reason: 'others fail, or nothing is answered',
    };
    return new TargetWaitsError(this.name, { afterMs: ms, reason });
  }

  /**
   * Lets a batch of several models wait as a whole while nothing else is taken either, so that nothing is written for each model; not for long,
   * because others in its slot would wait behind messages that may be to blame themselves.
   *
   * @param error why the first message that was sent waits; `undefined` if none was sent
   * @throws BrokerUnavailableError `broker-unavailable`
   */
  #throwIfOutage([first]: readonly BrokerMessage[], error: unknown): void {
    const { outageMs } = this.#health;
    if (first === undefined || outageMs === undefined || outageMs > wholeWaitMs) return;
    const { reason = 'others fail' } = this.#health.waitOf(first.id, this.#targetOf(first)) ?? {};
    const cause = error ?? new TargetWaitsError(this.name, { afterMs: undefined, reason });
    this.#note('waiting', 'broker-unavailable', cause);
    throw new BrokerUnavailableError(this.name, { cause });
  }

  #targetOf(message: BrokerMessage): string {
    return this.broker.targetOf?.(message) ?? '';
  }

  /**
   * Leaves out events that are not to be published, and those whose messages cannot be made, with later ones of their models.
   *
   * @param passed gets the ids of those that are not to be published
   */
  #messagesOf(
    envelopes: readonly EventEnvelope<undefined>[],
    failures: EventFailure[],
    passed: Set<string>,
  ): readonly BrokerMessage[] {
    const failedModels = new Set<string>();
    return envelopes.flatMap((envelope) => {
      const { modelName, modelId, eventId } = envelope;
      const model = `${modelName}\0${modelId}`;
      if (failedModels.has(model)) return [];
      try {
        if (this.#filter(envelope)) return [messageOf(envelope, this.#topic(envelope))];
        passed.add(eventId);
        return [];
      } catch (error) {
        failedModels.add(model);
        failures.push({ eventId, error });
        return [];
      }
    });
  }

  async #publish(
    messages: readonly BrokerMessage[],
    signal: AbortSignal,
    timeoutMs: number,
  ): Promise<ReadonlyMap<BrokerMessage, PublishOutcome>> {
    try {
      const publishing = { kind: 'publish', relay: this.name, messageCount: messages.length } as const;
      const outcomes = await this.#observe(publishing, () =>
        this.#publishWithin(messages, signal, timeoutMs),
      );
      this.#state = { ...this.#state, kind: 'publishing' };
      return new Map(messages.map((message, index) => [message, outcomes[index] ?? heldBack]));
    } catch (error) {
      if (isGivenUp(signal)) throw new BrokerUnavailableError(this.name, { cause: error });
      this.#note('waiting', 'broker-unavailable', error);
      const heads = firstOfEachKey(messages);
      // A message that is never answered, while others are, must not hold up those behind it.
      if (heads.some(({ id }) => this.#health.isSuspect(id))) {
        const reason = errorText(error);
        return new Map(heads.map((message) => [message, { kind: 'later', of: 'target', reason }]));
      }
      for (const message of heads) this.#health.blames(message.id, this.#targetOf(message));
      throw new BrokerUnavailableError(this.name, { cause: error });
    }
  }

  async #publishWithin(
    messages: readonly BrokerMessage[],
    signal: AbortSignal,
    timeoutMs: number,
  ): Promise<readonly PublishOutcome[]> {
    const limits = { clock: this.#clock, timeoutMs, signal };
    const { result, isEnded } = await endInTime(limits, (ended) => this.broker.publish(messages, ended));
    // Once the time is over, some may not have had their turn.
    if (!isEnded) assertComplete(messages, result, (message) => this.#targetOf(message));
    return result;
  }

  #note(kind: 'publishing' | 'waiting', code: RelayError['code'], error: unknown): void {
    this.#state = { kind, lastError: { code, text: errorText(error), date: new Date() } };
  }
}

function firstOfEachKey(messages: readonly BrokerMessage[]): readonly BrokerMessage[] {
  return [...Map.groupBy(messages, ({ key }) => key).values()].flatMap(([first]) => first ?? []);
}
