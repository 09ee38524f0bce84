import { type Clock, Ticker } from '../clock.js';
import type { ModelLockSettings } from '../config/settings.js';
import { type ModelClass, ModelMap } from '../id/model-class.js';

/** The right of one execution of this process to change a model, held until it is released. */
export interface ModelLock {
  readonly model: ModelClass<unknown>;
  readonly id: string;
}

interface Waiter {
  readonly startedTick: number;
  /** Whether it does not wait for a lock whose holder is held up. */
  readonly isBrief: boolean;
  readonly end: (lock: ModelLock | undefined) => void;
}

/** A model whose lock is held, and the waiters for it in the order in which they came. */
interface HeldModel {
  /** A new object for each holder. */
  lock: ModelLock;
  takenTick: number;
  /** Whether the holder is known to keep it for a long time. */
  isHeldUp: boolean;
  waiters: Waiter[];
}

/**
 * Lets the executions of one process change a model one after the other, so that they do not make each other stale.
 *
 * It only saves attempts. An execution without the lock is as safe as one with it, because the commit checks versions. So a lock
 * that is held for longer than the longest wait passes to the next waiter, because its holder may never release it.
 */
export class KeyedMutex {
  readonly #held = new ModelMap<HeldModel>();
  readonly #awaited = new Set<HeldModel>();
  readonly #ticker: Ticker;

  constructor({ waitMs }: ModelLockSettings, clock: Clock) {
    this.#ticker = new Ticker(clock, waitMs, () => this.#endWaits());
  }

  /** Takes a lock that is free; `undefined` when it is held. */
  tryAcquire(model: ModelClass<unknown>, id: string): ModelLock | undefined {
    if (this.#held.get(model, id) !== undefined) return undefined;
    const lock: ModelLock = { model, id };
    this.#held.set(model, id, { lock, takenTick: this.#ticker.tick, isHeldUp: false, waiters: [] });
    return lock;
  }

  /**
   * Waits for a lock that is held; `undefined` when the wait took too long.
   *
   * @param isBrief whether not to wait while the holder is held up
   */
  acquire(model: ModelClass<unknown>, id: string, isBrief: boolean = false): Promise<ModelLock | undefined> {
    const held = this.#held.get(model, id);
    if (held === undefined) return Promise.resolve(this.tryAcquire(model, id));
    if (held.isHeldUp && isBrief) return Promise.resolve(undefined);
    return new Promise((end) => {
      held.waiters.push({ startedTick: this.#ticker.tick, isBrief, end });
      this.#awaited.add(held);
      this.#ticker.start();
    });
  }

  /** Releases a lock, which passes to the waiter that has waited longest, if there is one. */
  release(lock: ModelLock): void {
    const held = this.#held.get(lock.model, lock.id);
    if (held?.lock === lock) this.#passOn(held);
  }

  /** Marks a lock as one that its holder keeps for a long time, which ends brief waits for it. */
  holdUp(lock: ModelLock): void {
    const held = this.#held.get(lock.model, lock.id);
    if (held?.lock !== lock) return;
    held.isHeldUp = true;
    const { waiters } = held;
    held.waiters = waiters.filter(({ isBrief }) => !isBrief);
    if (held.waiters.length === 0) this.#awaited.delete(held);
    for (const { isBrief, end } of waiters) if (isBrief) end(undefined);
  }

  #passOn(held: HeldModel): void {
    const { model, id } = held.lock;
    const next = held.waiters.shift();
    if (held.waiters.length === 0) this.#awaited.delete(held);
    if (next === undefined) {
      this.#held.delete(model, id);
      return;
    }
    held.lock = { model, id };
    held.takenTick = this.#ticker.tick;
    held.isHeldUp = false;
    next.end(held.lock);
  }

  /** Ends locks and waits that have lasted too long. Returns whether any waits are left. */
  #endWaits(): boolean {
    for (const held of this.#awaited) {
      if (this.#ticker.isOver(held.takenTick)) this.#passOn(held);
      this.#sendAway(held);
    }
    return this.#awaited.size > 0;
  }

  #sendAway(held: HeldModel): void {
    const { waiters } = held;
    // The waiters are in the order of their ticks.
    const kept = waiters.findIndex(({ startedTick }) => !this.#ticker.isOver(startedTick));
    const ended = waiters.splice(0, kept === -1 ? waiters.length : kept);
    if (waiters.length === 0) this.#awaited.delete(held);
    for (const { end } of ended) end(undefined);
  }
}
