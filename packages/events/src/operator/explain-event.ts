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
): Promise<HandlerStatus> {
  const asked = shards.slice(0, 1).map((shard) => ({ handler, eventId: event.id, shard }));
  if ((await store.blocked.mayComeAgain(asked)).length === 0) return { handler, paused, kind: 'passed' };
  const head = await store.deadLetters.headOf({ ...event, handler });
  if (head !== undefined && holdsUp(head, event)) return blockedStatus(head, paused, event);
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

/** Whether the head of a model is known to be why an event waits. */
function holdsUp(head: BlockedRow, event: DeliverableEvent): boolean {
  // What is behind an untried head may have been handled: the row moves once per batch.
  const isTried = head.error !== undefined || head.attempts !== 0 || head.event.id === event.id;
  return isTried && comparePositions(head.event, event) <= 0;
}

function blockedStatus(head: BlockedRow, paused: boolean, { id }: DeliverableEvent): HandlerStatus {
  const { handler, attempts, error, dead, nextAttemptDate } = head;
  const { id: behindEventId } = head.event;
  if (behindEventId !== id) return { handler, paused, kind: 'behind', behindEventId, behindDeadLetter: dead };
  return dead
    ? { handler, paused, kind: 'dead-letter', attempts, error }
    : { handler, paused, kind: 'backing-off', attempts, error, untilDate: nextAttemptDate };
}

/** The state of an event for one handler, and what it waits for. */
export type HandlerStatus = { readonly handler: string; readonly paused: boolean } & (
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
      readonly standings: readonly HandlerStatus[];
    };
