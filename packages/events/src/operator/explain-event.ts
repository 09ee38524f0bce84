import type { ShardIdentifier } from '@framework/core';
import type {
  DatabaseDelivery,
  DeadLetters,
  DeliverableEvent,
  DeliveryStore,
  HandlerCursor,
  BlockedFilter,
  BlockedRow,
} from '@framework/core/adapter';

const pageMax = 1_000;

/** Explains the state of an event of one database for each handler, or returns `undefined` when the database does not know it. */
export async function explainEvent(
  { store, shards }: DatabaseDelivery,
  eventId: string,
): Promise<EventExplanation | undefined> {
  const blocked: BlockedRow[] = [];
  for await (const row of eachBlocked(store.deadLetters, { eventId })) blocked.push(row);
  // Blocked events outlive the partitions of the log.
  const logged = await store.log.find(eventId);
  const event = logged ?? blocked[0]?.event;
  if (event === undefined) return undefined;
  const cursors = await store.cursors.load([event.slot]);
  const standings = await Promise.all(
    cursors.map((cursor) =>
      standing(
        store,
        event,
        cursor,
        blocked.find(({ handler }) => handler === cursor.handler),
        logged === undefined,
      ),
    ),
  );
  return { kind: 'in-log', event, shards, standings };
}

async function standing(
  store: DeliveryStore,
  event: DeliverableEvent,
  { handler, paused }: HandlerCursor,
  row: BlockedRow | undefined,
  isGone: boolean,
): Promise<HandlerStanding> {
  if (row !== undefined) return { handler, paused, ...(await blockedStanding(store.deadLetters, row)) };
  // A partition is dropped only when every cursor has passed it.
  if (isGone || (await store.cursors.hasPassed(handler, event))) return { handler, paused, kind: 'passed' };
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

async function blockedStanding(
  letters: DeadLetters,
  row: BlockedRow,
): Promise<DistributiveOmit<BlockedStanding, 'handler' | 'paused'>> {
  const { attempts, error } = row;
  if (row.dead) return { kind: 'dead-letter', attempts, error };
  const { handler, event } = row;
  // Without one, it was replayed or skipped meanwhile.
  const first = (await letters.firstOf({ ...event, handler })) ?? row;
  if (first.event.id !== row.event.id) {
    return { kind: 'behind', behindEventId: first.event.id, behindDeadLetter: first.dead };
  }
  return { kind: 'backing-off', attempts, error, untilDate: row.nextAttemptDate };
}

type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

/** All blocked events that match, page by page. */
async function* eachBlocked(letters: DeadLetters, filter: BlockedFilter): AsyncGenerator<BlockedRow> {
  let after: string | undefined;
  do {
    const page = await letters.find(filter, { limit: pageMax, ...(after !== undefined && { after }) });
    yield* page.items;
    after = page.next;
  } while (after !== undefined);
}

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
      /** It failed, and will be retried at this date, or at once if the date has passed. */
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
