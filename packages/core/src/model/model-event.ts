import type * as z from 'zod';
import { InvariantViolation } from '../errors/invariant-violation.js';
import { durableName } from './durable-name.js';
import type { ModelClass } from './model-class.js';

/**
 * Says that something happened to a model: a data carrier, attached to the version that it led to.
 *
 * A subclass declares `static readonly payload`, the schema of its own fields, by which they are written
 * and read back. The schema must work in both directions: codecs are fine, one-way transforms are not.
 *
 * ```ts
 * class WalletMoneyDepositedEvent extends ModelEvent<Wallet> {
 *   static readonly payload = z.object({ amount: decimal, newBalance: decimal });
 *   constructor(walletId: Id<Wallet>, readonly amount: Big, readonly newBalance: Big) {
 *     super(walletId.toString(), Wallet);
 *   }
 * }
 * ```
 */
export abstract class ModelEvent<M> {
  /** The id of the model to which it happened. */
  readonly modelId: string;
  /** The class of that model. */
  readonly model: ModelClass<M>;

  /** @throws InvariantViolation `invariant-violation` when the class declares no payload schema */
  constructor(modelId: string, model: ModelClass<M>) {
    if (!('payload' in new.target)) {
      throw new InvariantViolation(
        `${new.target.name} declares no payload: add static readonly payload = z.object({ … })`,
      );
    }
    this.modelId = modelId;
    this.model = model;
  }
}

/** The class of an event, as a value: its payload's schema and its durable name. */
export type EventClass<E extends ModelEvent<unknown> = ModelEvent<unknown>> = (abstract new (
  ...args: never[]
) => E) & {
  readonly name: string;
  readonly payload: z.ZodObject;
  /** The `event_type` of the log; the class name unless set. */
  readonly eventType?: string;
  /**
   * Brings a payload that an earlier version of the class wrote to what the schema reads now, and leaves a current one as
   * it is. Rows of the log never change, so it stays for as long as there are such rows. Default: none was ever
   * different.
   */
  readonly upcast?: (payload: never, event: { readonly modelId: string }) => unknown;
};

/** The name under which the log knows an event: its static `eventType`, else its class name. */
export function eventTypeOf(event: EventClass): string {
  return durableName(event, event.eventType, 'static readonly eventType');
}
