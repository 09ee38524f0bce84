import type { DeliverableEvent } from './deliverable-event.js';

/** An event that waits for a handler: it failed, or an earlier event of its model did. */
export interface ParkedEvent {
  readonly handler: string;
  /** The fencing token of the event's slot. */
  readonly token: string;
  readonly event: DeliverableEvent;
  /** How many attempts were made: 0 when it only waits for an earlier event of its model. */
  readonly attempts: number;
  /** What the last attempt threw. */
  readonly error: string | undefined;
  /** After how long the next attempt may be made; `undefined`: at once when it is its turn. */
  readonly retryAfterMs: number | undefined;
  /** Whether no further attempt is to be made: a dead letter. */
  readonly dead: boolean;
  /** Whether it may have killed a process: such events are tried one at a time. */
  readonly suspect: boolean;
}

/** A model whose further events must wait, for one handler. */
export interface ParkedModel {
  readonly handler: string;
  readonly slot: number;
  readonly modelName: string;
  readonly modelId: string;
}

/** The first parked event of a model, whose turn it is. */
export interface ParkedHead {
  readonly handler: string;
  readonly token: string;
  readonly event: DeliverableEvent;
  /** How many attempts were made before this one. */
  readonly attempts: number;
  readonly suspect: boolean;
}

/** How an attempt at a parked event ended. */
export type ParkedOutcome =
  | { readonly kind: 'done' }
  | { readonly kind: 'retry'; readonly error: string; readonly retryAfterMs: number }
  | { readonly kind: 'dead'; readonly error: string };
