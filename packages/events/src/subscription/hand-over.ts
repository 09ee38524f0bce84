import type { Subscription } from './subscription.js';
import type { RetryLoop } from './retry-loop.js';
import type { BlockedWrites } from './batched-writes.js';
import { type WorkerContext, untilDone, within } from '../worker-context.js';
import type { CursorSaver } from '../slots/cursor-saver.js';
import type { HeldSlot } from '../slots/held-slot.js';
import type { LeaseKeeper } from '../slots/lease-keeper.js';

/** The parts of one database's delivery that work in slots. */
export interface SlotWork {
  readonly context: WorkerContext;
  readonly keeper: Pick<LeaseKeeper, 'giveBack'>;
  readonly saver: Pick<CursorSaver, 'save'>;
  readonly moves: Pick<BlockedWrites['move'], 'idle'>;
  readonly retries: Pick<RetryLoop, 'leave'>;
  readonly subscriptions: ReadonlyMap<string, Pick<Subscription, 'leave' | 'dispatch'>>;
}

/** Hands slots over that other processes are to have, those of each handler as soon as it has finished there. */
export async function handOver(slots: readonly HeldSlot[], work: SlotWork): Promise<void> {
  work.retries.leave();
  const byHandler = [...Map.groupBy(slots, ({ handler }) => handler)];
  await Promise.all(byHandler.map(([handler, own]) => finishAndGiveBack(handler, own, work)));
}

/**
 * Finishes what one handler has read from some slots, for at most the time of a lease; after that, only for its running calls. Then
 * saves its positions, so that the next holder repeats nothing that is done, and gives the slots back.
 */
async function finishAndGiveBack(handler: string, slots: readonly HeldSlot[], work: SlotWork): Promise<void> {
  const { context, keeper, saver, moves, subscriptions } = work;
  const { clock, settings, stopping } = context;
  const subscription = subscriptions.get(handler);
  const idle = Promise.all(slots.map((slot) => slot.idle()));
  subscription?.leave();
  await within(clock, settings.leaseMs, idle);
  subscription?.dispatch.leave((slot) => slots.includes(slot));
  await idle;
  await moves.idle();
  await untilDone(context, stopping, () => saver.save(true));
  // A stop gives all slots back at once.
  if (!stopping.aborted) await keeper.giveBack(slots);
}
