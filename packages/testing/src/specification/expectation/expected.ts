import type { AnyEntity, ModelEvent } from '@framework/core';
import type { Like } from './like.js';

/** A value, or for an object {@link like} it; a model is compared without its version, dates and attached events. */
export type Expected<T> =
  | T
  | (T extends object ? Like<T> : never)
  | (T extends readonly (infer Item)[] ? readonly Expected<Item>[] : never);

/** An event as it was made, or some of its fields. */
export type ExpectedEvent = ModelEvent<unknown> | Like<ModelEvent<unknown>>;

/** A model as its own methods make it, or some of its fields. */
export type ExpectedModel = AnyEntity | Like<AnyEntity>;

/** What must have happened; what is left out is left open. */
export interface ExpectedEffects {
  /** All events that were committed, in this order. */
  readonly events?: readonly ExpectedEvent[];
  /** All models that were added or updated as they are now, in the order of their first change. */
  readonly models?: readonly ExpectedModel[];
}
