import {
  type DeliverableEvent,
  type EventClass,
  type ModelClass,
  ShardIdentifier,
  ShardedId,
  decodeEvent,
  modelNameOf,
} from '@framework/core';
import type { EventEnvelope } from './event-envelope.js';

/** Makes what handlers receive of the rows of one database's log. */
export class EnvelopeFactory {
  readonly #shards: readonly ShardIdentifier[];
  readonly #models = new Map<string, ModelClass<unknown>>();

  /**
   * @param shards whose events the log holds; at least one
   * @param models the classes that `event.model` gives; for others it gives an empty class of the same model name
   */
  constructor(shards: readonly ShardIdentifier[], models: readonly ModelClass<unknown>[]) {
    this.#shards = shards;
    for (const model of models) this.#models.set(modelNameOf(model), model);
  }

  /**
   * Decodes an event.
   *
   * @param eventClass `undefined` leaves the event undecoded
   * @throws UnstorableValueException `unstorable-value` when the payload does not fit the schema of the class
   */
  envelope(row: DeliverableEvent, eventClass: EventClass | undefined, attempt: number): EventEnvelope<never> {
    const model = this.#model(row.modelName);
    const event =
      eventClass && decodeEvent(eventClass, { model, modelId: row.modelId, payload: row.payload });
    return {
      event: event as never,
      eventId: row.id,
      eventType: row.type,
      payload: row.payload,
      shard: this.#shard(row.modelId),
      namespace: row.namespace,
      modelId: row.modelId,
      modelName: row.modelName,
      modelVersion: row.modelVersion,
      ordinal: row.ordinal,
      actionId: row.actionId,
      actionName: row.actionName,
      actionParams: row.actionParams,
      principal: row.principal,
      headers: row.headers,
      startedDate: row.startedDate,
      createdDate: row.createdDate,
      attempt,
    };
  }

  #shard(modelId: string): ShardIdentifier {
    const first = this.#shards[0] ?? ShardIdentifier.of(0, 0);
    if (this.#shards.length === 1) return first;
    const carried = carriedShard(modelId);
    return carried !== undefined && this.#shards.includes(carried) ? carried : first;
  }

  #model(name: string): ModelClass<unknown> {
    const known = this.#models.get(name);
    if (known !== undefined) return known;
    const standIn: ModelClass<unknown> = class extends UnknownModel {
      static readonly modelName = name;
    };
    this.#models.set(name, standIn);
    return standIn;
  }
}

/** What an event belongs to whose model's class is not given. */
abstract class UnknownModel {
  declare readonly id: unknown;
}

/** The shard in an id, if it is one that carries any; models may have ids of their own making. */
function carriedShard(modelId: string): ShardIdentifier | undefined {
  try {
    return ShardedId.of(Object, modelId).resolveShardIdentifier();
  } catch {
    return undefined;
  }
}
