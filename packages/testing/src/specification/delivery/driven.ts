import type { VirtualClock } from '../../virtual-clock.js';

const eagerTurns = 1_000;

/** Waits for work that may wait for a virtual clock: lets time pass whenever nothing else is left to do. */
export async function driven<T>(work: Promise<T>, clock: VirtualClock): Promise<T> {
  const progress = { isOver: false };
  const end = (): void => void (progress.isOver = true);
  work.then(end, end);
  for (let count = 0; !progress.isOver; count++) {
    await turn(count);
    if (!progress.isOver) await clock.wakeNext();
  }
  return work;
}

/** One turn of the event loop, after which everything that was ready has run; the long-waiting leave the processor to others. */
export function turn(count = 0): Promise<void> {
  return new Promise((resolve) => {
    if (count < eagerTurns) setImmediate(resolve);
    else setTimeout(resolve, 1);
  });
}
