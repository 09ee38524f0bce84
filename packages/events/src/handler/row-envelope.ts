import {
  type DeliverableEvent,
  type EventClass,
  type ModelClass,
  type ShardIdentifier,
  decodeEvent,
} from '@framework/core';
import type { EventEnvelope } from './event-envelope.js';

/** What an envelope asks when a handler looks into it. */
export interface EnvelopeNames {
  readonly modelOf: (modelName: string) => ModelClass<unknown>;
  readonly shardOf: (modelId: string) => ShardIdentifier;
}

/** An envelope around a row of the log; decodes what a handler reads, when it reads it, once. */
export class RowEnvelope implements EventEnvelope<never> {
  readonly attempt: number;
  readonly #row: DeliverableEvent;
  readonly #eventClass: EventClass | undefined;
  readonly #names: EnvelopeNames;
  #event: unknown;
  #payload: { readonly value: unknown } | undefined;

  constructor(
    row: DeliverableEvent,
    eventClass: EventClass | undefined,
    attempt: number,
    names: EnvelopeNames,
  ) {
    this.#row = row;
    this.#eventClass = eventClass;
    this.attempt = attempt;
    this.#names = names;
  }

  get event(): never {
    if (this.#event === undefined && this.#eventClass !== undefined) {
      const { modelName, modelId } = this.#row;
      const model = this.#names.modelOf(modelName);
      this.#event = decodeEvent(this.#eventClass, { model, modelId, payload: this.payload });
    }
    return this.#event as never;
  }

  get payload(): unknown {
    this.#payload ??= { value: this.#row.payload };
    return this.#payload.value;
  }

  get shard(): ShardIdentifier {
    return this.#names.shardOf(this.#row.modelId);
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
