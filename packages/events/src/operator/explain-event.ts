import type { ShardIdentifier } from '@framework/core';
import {
  type BlockedRow,
  type DatabaseDelivery,
  type DeliverableEvent,
  type HandlerCursor,
  comparePositions,
} from '@framework/core/adapter';

/** Explains the state of an event of one database for each handler, or returns `undefined` when the database does not know it. */
export async function explainEvent(
  { store, shards }: DatabaseDelivery,
  eventId: string,
): Promise<EventExplanation | undefined> {
  const event = await store.log.find(eventId);
  if (event === undefined) return undefined;
  const cursors = await store.cursors.load([event.slot]);
  const standings = await Promise.all(cursors.map((cursor) => standing({ store, shards }, event, cursor)));
  return { kind: 'in-log', event, shards, standings };
}

async function standing(
  { store, shards }: Pick<DatabaseDelivery, 'store' | 'shards'>,
  event: DeliverableEvent,
  { handler, paused }: HandlerCursor,
): Promise<HandlerStanding> {
  const passed = { handler, paused, kind: 'passed' } as const;
  const head = await store.deadLetters.headOf({ ...event, handler });
  const waits = head !== undefined && comparePositions(head.event, event) <= 0;
  // What is behind an untried head may have been handled: the row moves once per batch.
  const isTried = head?.error !== undefined || head?.attempts !== 0 || head.event.id === event.id;
  if (waits && isTried) {
    const asked = shards.slice(0, 1).map((shard) => ({ handler, eventId: event.id, shard }));
    const isDone = (await store.blocked.mayComeAgain(asked)).length === 0;
    return isDone ? passed : { handler, paused, ...blockedStanding(head, event) };
  }
  if (!waits && (await store.cursors.hasPassed(handler, event))) return passed;
  const lease = (await store.leases.list()).find(
    (each) => each.handler === handler && each.slot === event.slot,
  );
  return {
    handler,
    paused,
    kind: 'pending',
    leasedTo: lease?.processId,
    leasedUntilDate: lease?.untilDate,
  };
}

type BlockedStanding = Extract<HandlerStanding, { readonly kind: 'dead-letter' | 'backing-off' | 'behind' }>;

function blockedStanding(
  head: BlockedRow,
  { id }: DeliverableEvent,
): DistributiveOmit<BlockedStanding, 'handler' | 'paused'> {
  const { attempts, error, dead, nextAttemptDate } = head;
  if (head.event.id !== id) return { kind: 'behind', behindEventId: head.event.id, behindDeadLetter: dead };
  return dead
    ? { kind: 'dead-letter', attempts, error }
    : { kind: 'backing-off', attempts, error, untilDate: nextAttemptDate };
}

type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

/** The state of an event for one handler, and what it waits for. */
export type HandlerStanding = { readonly handler: string; readonly paused: boolean } & (
  | {
      /** The handler has handled it, or did not want it. */
      readonly kind: 'passed';
    }
  | {
      /** Its last attempt has failed: see {@link DeliveryOperator.replay} and {@link DeliveryOperator.skip}. */
      readonly kind: 'dead-letter';
      readonly attempts: number;
      readonly error: string | undefined;
    }
  | {
      /** It failed, or is the untried head of its model. The next attempt is due at this date, or now if the date has passed. */
      readonly kind: 'backing-off';
      readonly attempts: number;
      readonly error: string | undefined;
      readonly untilDate: Date | undefined;
    }
  | {
      /** It is blocked behind an earlier event of its model. */
      readonly kind: 'behind';
      readonly behindEventId: string;
      /** Whether that event is a dead letter, and so waits for an operator. */
      readonly behindDeadLetter: boolean;
    }
  | {
      /** The handler has not reached it yet. */
      readonly kind: 'pending';
      /** The process that holds the event's slot; `undefined` when none does. */
      readonly leasedTo: string | undefined;
      readonly leasedUntilDate: Date | undefined;
    }
);

/** Why an event has, or has not, been handled. */
export type EventExplanation =
  | {
      /** No log contains it: it was never committed, its transaction is still open, or its partition was dropped. */
      readonly kind: 'not-in-log';
    }
  | {
      readonly kind: 'in-log';
      readonly event: DeliverableEvent;
      /** The shards of the database whose log holds it. */
      readonly shards: readonly ShardIdentifier[];
      readonly standings: readonly HandlerStanding[];
    };
