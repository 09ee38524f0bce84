import { type EventClass, type ModelClass, ShardIdentifier, ShardedId } from '@framework/core';
import { type DeliverableEvent, ModelsByName, decodeEvent } from '@framework/core/adapter';

import type { EventEnvelope } from './event-handler.js';

/** Turns rows of one database's log into what handlers receive. */
export class EnvelopeFactory {
  readonly #shards: readonly ShardIdentifier[];
  readonly #models: ModelsByName;

  /**
   * @param shards the shards whose events the log holds; at least one
   * @param models the classes that `event.model` returns; for other models it returns an empty class with the model's name
   * @throws InvariantViolationError `invariant-violation` when two models have the same name
   */
  constructor(shards: readonly ShardIdentifier[], models: readonly ModelClass<unknown>[]) {
    this.#shards = shards;
    this.#models = new ModelsByName(models);
  }

  /** @param eventClass decodes the event when it is accessed; `undefined` leaves it undecoded */
  envelope(row: DeliverableEvent, eventClass: EventClass | undefined, attempt: number): EventEnvelope<never> {
    return new RowEnvelope(row, eventClass, attempt, this);
  }

  /** The class that `event.model` returns for a model. */
  modelOf(modelName: string): ModelClass<unknown> {
    return this.#models.get(modelName);
  }

  /** The shard of a model whose events are in the log. */
  shardOf(modelId: string): ShardIdentifier {
    const first = this.#shards[0] ?? ShardIdentifier.of(0, 0);
    if (this.#shards.length === 1) return first;
    const carried = carriedShard(modelId);
    return this.#shards.find((shard) => shard === carried) ?? first;
  }
}

/**
 * An event of a log as a handler of all events receives it, for those who read the log themselves.
 *
 * @param shards the shards whose events the log holds; at least one
 */
export function envelopeOf(
  event: DeliverableEvent,
  shards: readonly ShardIdentifier[],
): EventEnvelope<undefined> {
  return new EnvelopeFactory(shards, []).envelope(event, undefined, 1);
}

/** The shard in an id, if it contains one; models may have ids of their own format. */
function carriedShard(modelId: string): ShardIdentifier | undefined {
  try {
    return ShardedId.of(Object, modelId).resolveShardIdentifier();
  } catch {
    return undefined;
  }
}

/** An envelope around a row of the log; decodes the payload and the event once each, when a handler accesses them. */
class RowEnvelope implements EventEnvelope<never> {
  readonly attempt: number;
  readonly #row: DeliverableEvent;
  readonly #eventClass: EventClass | undefined;
  readonly #factory: EnvelopeFactory;
  #event: unknown;
  #payload: { readonly value: unknown } | undefined;

  constructor(
    row: DeliverableEvent,
    eventClass: EventClass | undefined,
    attempt: number,
    factory: EnvelopeFactory,
  ) {
    this.#row = row;
    this.#eventClass = eventClass;
    this.attempt = attempt;
    this.#factory = factory;
  }

  get event(): never {
    if (this.#event === undefined && this.#eventClass !== undefined) {
      const { id, modelName, modelId } = this.#row;
      const model = this.#factory.modelOf(modelName);
      this.#event = decodeEvent(this.#eventClass, { id, model, modelId, payload: this.payload });
    }
    return this.#event as never;
  }

  get payload(): unknown {
    this.#payload ??= { value: this.#row.payload };
    return this.#payload.value;
  }

  get shard(): ShardIdentifier {
    return this.#factory.shardOf(this.#row.modelId);
  }

  get eventId(): string {
    return this.#row.id;
  }

  get eventType(): string {
    return this.#row.type;
  }

  get namespace(): string {
    return this.#row.namespace;
  }

  get modelId(): string {
    return this.#row.modelId;
  }

  get modelName(): string {
    return this.#row.modelName;
  }

  get modelVersion(): number {
    return this.#row.modelVersion;
  }

  get ordinal(): number {
    return this.#row.ordinal;
  }

  get actionId(): string {
    return this.#row.actionId;
  }

  get actionName(): string {
    return this.#row.actionName;
  }

  get actionParams(): unknown {
    return this.#row.actionParams;
  }

  get principal(): string {
    return this.#row.principal;
  }

  get headers(): Readonly<Record<string, string>> {
    return this.#row.headers;
  }

  get startedDate(): Date {
    return this.#row.startedDate;
  }

  get createdDate(): Date {
    return this.#row.createdDate;
  }
}
