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
  readonly moves: Pick<BlockedWrites['move'], 'answered'>;
  readonly retries: Pick<RetryLoop, 'leave'>;
  readonly subscriptions: ReadonlyMap<string, Pick<Subscription, 'leave' | 'dispatch'>>;
}

/** Hands over slots beyond the share of this process, each as soon as everything is finished there. */
export async function handOver(slots: readonly HeldSlot[], work: SlotWork): Promise<void> {
  work.retries.leave();
  for (const subscription of work.subscriptions.values()) subscription.leave();
  await Promise.all(slots.map((slot) => finishAndGiveBack(slot, work)));
}

/**
 * Finishes what was read from a slot, for at most the time of a lease, and then only the calls that are running, for as long again.
 * Then saves the position there, so that the next holder repeats nothing that is done, and gives the slot back. Longer calls are
 * aborted, as by a stop: the other events of their slot do not wait for them any longer.
 */
async function finishAndGiveBack(slot: HeldSlot, work: SlotWork): Promise<void> {
  const { context, keeper, saver, moves, subscriptions } = work;
  const { clock, settings, stopping } = context;
  const idle = slot.idle();
  await within(clock, settings.leaseMs, idle);
  subscriptions.get(slot.handler)?.dispatch.leave((each) => each === slot);
  await within(clock, settings.leaseMs, idle);
  await moves.answered();
  await untilDone(context, stopping, () => saver.save(true));
  // A stop gives all slots back at once.
  if (!stopping.aborted) await keeper.giveBack([slot]);
}
