import type { DeliverableEvent, ShardIdentifier } from '@framework/core';

/** Where an event stands for one handler, and what it waits for. */
export type HandlerStanding = { readonly handler: string; readonly paused: boolean } & (
  | {
      /** The handler has handled it, or did not want it. */
      readonly kind: 'passed';
    }
  | {
      /** It failed as often as it may: see {@link DeliveryOperator.replay} and {@link DeliveryOperator.skip}. */
      readonly kind: 'dead-letter';
      readonly attempts: number;
      readonly error: string | undefined;
    }
  | {
      /** It failed, and is tried again; at once when the date has passed. */
      readonly kind: 'backing-off';
      readonly attempts: number;
      readonly error: string | undefined;
      readonly untilDate: Date | undefined;
    }
  | {
      /** It is parked behind an earlier event of its model. */
      readonly kind: 'behind';
      readonly behindEventId: string;
      /** Whether that one is a dead letter, and so waits for an operator. */
      readonly behindDeadLetter: boolean;
    }
  | {
      /** The handler has not come to it yet. */
      readonly kind: 'pending';
      /** Who holds the event's slot; `undefined` when nobody does. */
      readonly leasedTo: string | undefined;
      readonly leasedUntilDate: Date | undefined;
    }
);

/** Why an event has, or has not, been handled. */
export type EventExplanation =
  | {
      /** No log holds it: it was never committed, its transaction is still open, or its partition was dropped. */
      readonly kind: 'not-in-log';
    }
  | {
      readonly kind: 'in-log';
      readonly event: DeliverableEvent;
      /** The shards of the database whose log holds it. */
      readonly shards: readonly ShardIdentifier[];
      readonly standings: readonly HandlerStanding[];
    };
