import type { BlockedModels } from '@framework/core/adapter';

import { eventBytesMax } from '../delivery-settings.js';
import type { LeaseKeeper } from '../slots/lease-keeper.js';
import { type WorkerContext, StoreBackoff, WakeSignal } from '../worker-context.js';
import type { QuarantineGate } from './quarantine.js';
import { type AttemptEnd, type Trial, freshMs } from './retry-step.js';
import type { Subscription } from './subscription.js';
import type { HeldSlot, ModelRecovery } from '../slots/held-slot.js';

/**
 * How many heads are read at most for each that may be tried at the same time. More than two only for handlers that use them up at once:
 * otherwise heads that are due before them would come too late.
 */
const headsPerRetry = 16;

/** How many models of a slot are recovered at once, including those whose heads are being tried. */
const recoveriesMax = 128;

/** A blocked model that one of the subscriptions can recover now. */
interface Recovery {
  /** Until it has been tried: a large event must not stay in memory while the rest is drained. */
  trial: Trial | undefined;
  readonly model: ModelRecovery;
  readonly subscription: Subscription;
}

interface RetryLoopOptions {
  readonly context: WorkerContext;
  readonly blocked: Pick<BlockedModels, 'dueHeads' | 'nextDueMs'>;
  readonly keeper: LeaseKeeper;
  /** By the permanent ids of their handlers. */
  readonly subscriptions: ReadonlyMap<string, Subscription>;
  /** Shared by all databases of a process. */
  readonly gate: QuarantineGate;
}

/** Finds the blocked models that are due in one database, and lets the subscriptions of their handlers recover them. */
export class RetryLoop {
  readonly #options: RetryLoopOptions;
  readonly #wakeSignal: WakeSignal;
  /** The models that are being recovered, and those that are next. */
  readonly #busy = new Set<Recovery>();
  readonly #recovering = new Set<Promise<void>>();
  /** Those whose heads are being tried. */
  readonly #trying = new Set<Recovery>();
  /** Those that are next: for each handler, up to as many as may be tried at once, so that it never waits for the database. */
  #next: ReadonlySet<Recovery> = new Set();
  /** The last read of each handler's heads: its limit, its time, and whether it reached the limit. */
  readonly #reads = new WeakMap<
    Subscription,
    { readonly headsMax: number; readonly readMs: number; readonly isFull: boolean }
  >();

  constructor(options: RetryLoopOptions) {
    this.#options = options;
    this.#wakeSignal = new WakeSignal(options.context.clock);
  }

  /** Resolves when no recovery is in progress. */
  async idle(): Promise<void> {
    while (this.#recovering.size > 0) await Promise.all(this.#recovering);
  }

  /** Begins nothing new in slots that are being left. */
  leave(): void {
    this.#start();
  }

  /** Polls at once, because something may be due. */
  wake(): void {
    this.#wakeSignal.wake();
  }

  /**
   * Polls for models that are due until delivery stops. While none is known to be blocked, it polls only once per lease time: a
   * statement that blocks a model may reach the database after delivery gave up waiting for it, and after its events were handled.
   */
  async run(): Promise<void> {
    const { context, subscriptions } = this.#options;
    const { stopping, settings } = context;
    const backoff = new StoreBackoff(context);
    while (!stopping.aborted) {
      if (![...subscriptions.values()].some(({ slots }) => slots.hasBlocked)) {
        const wasWoken = await this.#wakeSignal.wait(settings.leaseMs);
        if (wasWoken) continue;
      }
      let waitMs = 0;
      const isDone = await backoff.tried(async () => (waitMs = await this.#round()), stopping);
      if (isDone) await this.#wakeSignal.wait(waitMs);
    }
    this.#start();
  }

  /** @returns the time until the next round is due, in milliseconds */
  async #round(): Promise<number> {
    const { settings } = this.#options.context;
    const due = this.#sharedOut(await this.#dueRecoveries());
    for (const recovery of due) this.#busy.add(recovery);
    this.#queue(due);
    // One statement may return fewer models than there is room for.
    if (due.length >= settings.dueMax) this.#wakeSignal.wake();
    if (this.#busy.size > 0) return settings.pollMinMs;
    const places = this.#options.keeper.slots.filter((held) => this.#subscriptionOf(held)?.paused === false);
    const nextDueMs = (await this.#options.blocked.nextDueMs(places)) ?? Infinity;
    return Math.min(settings.blockedPollMs, nextDueMs > 0 ? nextDueMs : settings.pollMinMs);
  }

  /** Takes as many due models of each handler as can be recovered soon, however many others are due. */
  async #dueRecoveries(): Promise<readonly Recovery[]> {
    const { settings, clock } = this.#options.context;
    const readMs = clock.elapsedMs();
    const busy = [...this.#busy].filter(({ model }) => model.slot.held);
    const countsOfSlots = countBy(busy, ({ model }) => model.slot);
    const tried = busy.filter((recovery) => this.#next.has(recovery) || this.#trying.has(recovery));
    const triedCounts = countBy(tried, ({ subscription }) => subscription);
    const triedOfSlots = countBy(tried, ({ model }) => model.slot);
    const asked = new Map<Subscription, number>();
    const places = this.#options.keeper.slots.flatMap((held) => {
      const { handler, slot } = held;
      const subscription = this.#subscriptionOf(held);
      if (subscription === undefined || subscription.paused) return [];
      const { retriesOfSlotMax, waitMaxMs } = subscription.dispatch;
      if ((triedOfSlots.get(held) ?? 0) >= retriesOfSlotMax) return [];
      if ((countsOfSlots.get(held) ?? 0) >= recoveriesMax) return [];
      const allowed = asked.get(subscription) ?? this.#headsMax(subscription, readMs);
      asked.set(subscription, allowed);
      const headsMax = allowed - (triedCounts.get(subscription) ?? 0);
      return headsMax > 0 ? [{ handler, slot, waitMaxMs, headsMax }] : [];
    });
    if (places.length === 0) return [];
    const except = busy.map(({ model }) => model.leased);
    const options = { bytesMax: eventBytesMax(settings), except };
    const heads = await this.#options.blocked.dueHeads(places, settings.dueMax, options);
    const due = heads.flatMap((head) => this.#recovery({ head, behind: [], readMs }) ?? []);
    const dueCounts = countBy([...tried, ...due], ({ subscription }) => subscription);
    for (const [subscription, headsMax] of asked)
      this.#reads.set(subscription, {
        headsMax,
        readMs,
        isFull: (dueCounts.get(subscription) ?? 0) >= headsMax,
      });
    return due;
  }

  /**
   * How many heads of a handler may be read or tried: twice the last limit if the last read reached it and its heads were used up
   * at once; otherwise half of it, but at least twice as many as may be tried at the same time.
   */
  #headsMax(subscription: Subscription, nowMs: number): number {
    const last = this.#reads.get(subscription);
    const { retriesMax, retriesOfSlotMax } = subscription.dispatch;
    if (last === undefined || retriesOfSlotMax !== Infinity) return 2 * retriesMax;
    const isUsedUp = last.isFull && nowMs - last.readMs < freshMs && !this.#hasNext(subscription);
    return isUsedUp
      ? Math.min(2 * last.headsMax, headsPerRetry * retriesMax)
      : Math.max(2 * retriesMax, Math.floor(last.headsMax / 2));
  }

  #hasNext(subscription: Subscription): boolean {
    return [...this.#next].some((each) => each.subscription === subscription);
  }

  /** The subscription of a slot, once it knows which models are blocked there. */
  #subscriptionOf(held: HeldSlot): Subscription | undefined {
    const subscription = this.#options.subscriptions.get(held.handler);
    return subscription?.slots.mayRecover(held) === true ? subscription : undefined;
  }

  #recovery(trial: Trial): Recovery | undefined {
    const slot = this.#options.keeper.get(trial.head.token);
    const subscription = slot && this.#subscriptionOf(slot);
    const model = slot && subscription?.take(slot, trial.head);
    return model && subscription && { trial, model, subscription };
  }

  /** Leaves to later rounds the heads that would only wait for others of their slot, and keep out those of other slots. */
  #sharedOut(due: readonly Recovery[]): readonly Recovery[] {
    const tried = [...this.#next, ...this.#trying];
    const counts = countBy(tried, ({ model }) => model.slot);
    return due.filter((recovery) => {
      const { slot } = recovery.model;
      const count = counts.get(slot) ?? 0;
      counts.set(slot, count + 1);
      const isShared = count < recovery.subscription.dispatch.retriesOfSlotMax;
      if (!isShared) this.#leave(recovery);
      return isShared;
    });
  }

  /** Starts the recoveries for which there is capacity, and leaves those that may not be made. */
  #start(): void {
    const counts = countBy(this.#trying, ({ subscription }) => subscription);
    const next = new Set<Recovery>();
    for (const recovery of this.#next) {
      const { subscription } = recovery;
      const count = counts.get(subscription) ?? 0;
      if (subscription.paused || recovery.model.slot.isLeaving) {
        this.#leave(recovery);
      } else if (count >= subscription.dispatch.retriesMax) {
        next.add(recovery);
      } else {
        counts.set(subscription, count + 1);
        this.#trying.add(recovery);
        this.#track(recovery, this.#recover(recovery));
      }
    }
    this.#next = next;
  }

  /** Leaves a model to a later round, or to the next holder of its slot. */
  #leave(recovery: Recovery): void {
    this.#busy.delete(recovery);
    this.#track(recovery, recovery.subscription.leaveModel(recovery.model));
  }

  #track({ model: { slot } }: Recovery, work: Promise<void>): void {
    slot.countWork(1);
    const tracked = work.finally(() => {
      this.#recovering.delete(tracked);
      slot.countWork(-1);
    });
    this.#recovering.add(tracked);
  }

  async #recover(recovery: Recovery): Promise<void> {
    const { model, subscription } = recovery;
    if (await this.#try(recovery)) {
      recovery.trial = await subscription.nextSuspects(model);
      if (recovery.trial !== undefined) return this.#queue([recovery]);
      await subscription.drain(model);
    }
    this.#end(recovery);
  }

  /** Lets heads be tried as soon as there is capacity. */
  #queue(recoveries: readonly Recovery[]): void {
    this.#next = new Set([...this.#next, ...recoveries].toSorted((one, other) => rank(one) - rank(other)));
    this.#start();
  }

  #end(recovery: Recovery): void {
    this.#busy.delete(recovery);
    this.#fillUp(recovery.subscription);
  }

  /** Tries the head; returns whether the rest of the model may be drained. */
  async #try(recovery: Recovery): Promise<boolean> {
    const { trial, model, subscription } = recovery;
    if (trial === undefined) return false;
    const { openCount } = trial.head;
    const { settings } = this.#options.context;
    let tried: Promise<AttemptEnd> = Promise.resolve('left');
    const work = async (alone?: AbortSignal): Promise<void> => {
      if (model.slot.isLeaving || subscription.paused) return this.#leave(recovery);
      tried = subscription.tryHead(trial, model, alone);
      await whileHeld(model.slot, tried);
    };
    // With doubling times, even a slow event that kills its process eventually does so while it is alone.
    const aloneMs = settings.quarantineMs * 2 ** (openCount - 1);
    await (openCount > 0
      ? this.#options.gate.runIsolated(work, aloneMs)
      : this.#options.gate.runShared(work));
    this.#trying.delete(recovery);
    this.#start();
    const end = await tried;
    recovery.trial = undefined;
    if (typeof end === 'string') return false;
    // Others can be tried while this one is moved and drained.
    if (model.suspectCount <= 1) this.#fillUp(subscription);
    return subscription.passHead(trial, model, end);
  }

  /** Polls at once if no further head of a handler is next. */
  #fillUp(subscription: Subscription): void {
    if (!this.#hasNext(subscription)) this.#wakeSignal.wake();
  }
}

/**
 * Resolves when work has ended, or its slot is lost. In that case the call is abandoned, and its end is still to be written to a
 * database that may be down; attempts in other databases do not wait for that.
 */
async function whileHeld({ lost }: HeldSlot, work: Promise<unknown>): Promise<void> {
  const gone = Promise.withResolvers<unknown>();
  if (lost.aborted) gone.resolve(undefined);
  lost.addEventListener('abort', gone.resolve);
  try {
    await Promise.race([work, gone.promise]);
  } finally {
    lost.removeEventListener('abort', gone.resolve);
  }
}

/** Heads that must be tried alone come before those that may be tried in parallel, and suspects before the others. */
function rank({ trial, model }: Recovery): number {
  if (trial !== undefined && trial.head.openCount > 0) return 0;
  return model.suspectCount > 0 && trial?.head.hasFailed === false ? 1 : 2;
}

function countBy<Key>(recoveries: Iterable<Recovery>, keyOf: (recovery: Recovery) => Key): Map<Key, number> {
  const counts = new Map<Key, number>();
  for (const recovery of recoveries) counts.set(keyOf(recovery), (counts.get(keyOf(recovery)) ?? 0) + 1);
  return counts;
}
