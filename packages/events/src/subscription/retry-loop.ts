import type { BlockedEvents, BlockedHead } from '@framework/core/adapter';

import { eventBytesMax } from '../delivery-settings.js';
import type { HeldSlot } from '../slots/held-slot.js';
import type { LeaseKeeper } from '../slots/lease-keeper.js';
import { type WorkerContext, WakeSignal, storeBackoff } from '../worker-context.js';
import { modelKey } from './keyed-queue.js';
import type { QuarantineGate } from './quarantine.js';
import type { Subscription } from './subscription.js';

/** The longest time for which an event may be tried alone: the longest delay of a timer. */
const aloneMaxMs = 2 ** 31 - 1;

/** A blocked event that one of the subscriptions can try now. */
interface Attempt {
  readonly key: string;
  readonly head: BlockedHead;
  readonly slot: HeldSlot;
  readonly subscription: Subscription;
}

/** Finds blocked events that are due in one database, and passes them to the subscriptions of their handlers. */
export class RetryLoop {
  readonly #context: WorkerContext;
  readonly #blocked: Pick<BlockedEvents, 'dueHeads' | 'suspectPlaces' | 'nextDueMs'>;
  readonly #keeper: LeaseKeeper;
  readonly #subscriptions: ReadonlyMap<string, Subscription>;
  readonly #gate: QuarantineGate;
  readonly #wakeSignal: WakeSignal;
  /** The attempts that are being made, and those that are next, by handler and model. */
  readonly #taken = new Map<string, Attempt>();
  /** The attempts that are next: for each handler, up to as many as may run at once, so that it never waits for the database. */
  #next: ReadonlySet<Attempt> = new Set();
  /** Models whose last attempt has ended, and of which it is not known whether further events are blocked. */
  readonly #ended = new Map<string, Attempt>();

  constructor(options: {
    readonly context: WorkerContext;
    readonly blocked: Pick<BlockedEvents, 'dueHeads' | 'suspectPlaces' | 'nextDueMs'>;
    readonly keeper: LeaseKeeper;
    readonly subscriptions: ReadonlyMap<string, Subscription>;
    /** Shared by all databases of a process. */
    readonly gate: QuarantineGate;
  }) {
    this.#context = options.context;
    this.#blocked = options.blocked;
    this.#keeper = options.keeper;
    this.#subscriptions = options.subscriptions;
    this.#gate = options.gate;
    this.#wakeSignal = new WakeSignal(options.context.clock);
  }

  /** Polls at once, because something may be due. */
  wake(): void {
    this.#wakeSignal.wake();
  }

  /**
   * Polls for due events until delivery stops. While no model is known to be blocked, it polls only once per lease time: a
   * statement that blocks an event may reach the database after delivery gave up waiting for it, and after the event was
   * handled.
   */
  async run(): Promise<void> {
    const { stopping, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    while (!stopping.aborted) {
      if (![...this.#subscriptions.values()].some((subscription) => subscription.waitsForBlocked)) {
        const wasWoken = await this.#wakeSignal.wait(this.#context.settings.leaseMs);
        if (wasWoken) continue;
      }
      try {
        const waitMs = await this.#round();
        backoff.succeeded();
        await this.#wakeSignal.wait(waitMs);
      } catch (error) {
        onError(error);
        await backoff.failed(stopping);
      }
    }
  }

  /** @returns the time until the next round is due, in milliseconds */
  async #round(): Promise<number> {
    const { settings } = this.#context;
    await this.#release();
    // Only these are checked below: the answer might not cover models that are added while the database is asked.
    const ended = new Map(this.#ended);
    const heads = await this.#dueHeads();
    const due = this.#sharedOut(heads.flatMap((head) => this.#attempt(head) ?? []));
    this.#check(ended, heads);
    this.#take(due);
    // One statement may return fewer events than there is room for.
    if (due.length >= settings.dueMax) this.#wakeSignal.wake();
    if (this.#taken.size > 0) return settings.pollMinMs;
    const places = this.#keeper.slots.filter((held) => this.#subscriptionOf(held)?.paused === false);
    const nextDueMs = (await this.#blocked.nextDueMs(places)) ?? Infinity;
    return Math.min(settings.blockedPollMs, nextDueMs > 0 ? nextDueMs : settings.pollMinMs);
  }

  /** Asks for as many due events of each handler as can be tried soon, however many others are due. */
  async #dueHeads(): Promise<readonly BlockedHead[]> {
    const { settings } = this.#context;
    const taken = [...this.#taken.values()];
    const counts = countBy(taken, ({ subscription }) => subscription);
    const countsOfSlots = countBy(taken, ({ slot }) => slot);
    const places = this.#keeper.slots.flatMap((held) => {
      const { handler, slot } = held;
      const subscription = this.#subscriptionOf(held);
      if (subscription === undefined || subscription.paused) return [];
      const { retriesMax, retriesOfSlotMax, waitMaxMs } = subscription.dispatch;
      if ((countsOfSlots.get(held) ?? 0) >= retriesOfSlotMax) return [];
      const headsMax = 2 * retriesMax - (counts.get(subscription) ?? 0);
      return headsMax > 0 ? [{ handler, slot, waitMaxMs, headsMax }] : [];
    });
    if (places.length === 0) return [];
    const except = taken.map(({ head: { handler, event } }) => ({ ...event, handler }));
    return this.#blocked.dueHeads(places, settings.dueMax, { bytesMax: eventBytesMax(settings), except });
  }

  /**
   * The subscription of a slot, once it has started there. Before that it is still reading which models have blocked events: if
   * the last event of one were handled meanwhile, the model would stay marked as blocked.
   */
  #subscriptionOf(held: HeldSlot): Subscription | undefined {
    const subscription = this.#subscriptions.get(held.handler);
    return subscription?.slots.has(held) === true ? subscription : undefined;
  }

  #attempt(head: BlockedHead): Attempt | undefined {
    const slot = this.#keeper.get(head.token);
    const subscription = slot && this.#subscriptionOf(slot);
    if (subscription === undefined || slot === undefined) return undefined;
    return { key: headKey(head), head, slot, subscription };
  }

  /** Leaves to later rounds the attempts that would only wait for others of their slot, and keep out those of other slots. */
  #sharedOut(due: readonly Attempt[]): readonly Attempt[] {
    const counts = countBy(this.#taken.values(), ({ slot }) => slot);
    return due.filter(({ subscription, slot }) => {
      const count = counts.get(slot) ?? 0;
      counts.set(slot, count + 1);
      return count < subscription.dispatch.retriesOfSlotMax;
    });
  }

  /** Checks models whose attempt has ended and that have no other due event. */
  #check(ended: ReadonlyMap<string, Attempt>, heads: readonly BlockedHead[]): void {
    const due = new Set(heads.map(headKey));
    for (const [key, { subscription, head, slot }] of ended) {
      // The slot may have been lost, and obtained again under the same token, since the attempt began.
      const held = this.#keeper.get(slot.token);
      if (held !== undefined && this.#subscriptionOf(held) === undefined) continue;
      this.#ended.delete(key);
      if (held !== undefined && !due.has(key)) subscription.dispatch.check(head.event, held);
    }
  }

  /** Ends the quarantine of slots that have no suspect left to be tried; other retries, which may never end, do not matter. */
  async #release(): Promise<void> {
    const inQuarantine = [...this.#subscriptions.values()].flatMap(({ slots }) => slots.inQuarantine);
    if (inQuarantine.length === 0) return;
    const suspects = [...(await this.#blocked.suspectPlaces(inQuarantine))];
    for (const { head, slot } of this.#taken.values()) if (head.suspect) suspects.push(slot);
    const busy = new Set(suspects.map(({ handler, slot }) => `${handler} ${slot}`));
    for (const slot of inQuarantine) {
      if (!busy.has(`${slot.handler} ${slot.slot}`))
        this.#subscriptions.get(slot.handler)?.slots.released(slot);
    }
  }

  #take(due: readonly Attempt[]): void {
    for (const attempt of due) {
      this.#taken.set(attempt.key, attempt);
      attempt.subscription.knowBlocked(attempt.slot, attempt.head.event);
    }
    this.#next = new Set([...this.#next, ...due].toSorted((one, other) => rank(one) - rank(other)));
    this.#start();
  }

  /** Starts the attempts for which there is capacity. */
  #start(): void {
    const counts = countBy(
      [...this.#taken.values()].filter((attempt) => !this.#next.has(attempt)),
      ({ subscription }) => subscription,
    );
    const next = new Set<Attempt>();
    for (const attempt of this.#next) {
      const { key, subscription } = attempt;
      const count = counts.get(subscription) ?? 0;
      if (subscription.paused) {
        this.#taken.delete(key);
      } else if (count >= subscription.dispatch.retriesMax) {
        next.add(attempt);
      } else {
        counts.set(subscription, count + 1);
        void this.#try(attempt);
      }
    }
    this.#next = next;
  }

  async #try(attempt: Attempt): Promise<void> {
    const { subscription, head, slot, key } = attempt;
    const { stopping, settings } = this.#context;
    const work = async (alone?: AbortSignal): Promise<void> => {
      if (!stopping.aborted && !subscription.paused) await subscription.dispatch.retry(head, slot, alone);
      this.#taken.delete(key);
      // The rest belongs to the next process that delivers.
      if (stopping.aborted) return;
      this.#ended.set(key, attempt);
      this.#start();
      if (![...this.#next].some((each) => each.subscription === subscription)) this.#wakeSignal.wake();
    };
    const heldWork = (alone?: AbortSignal): Promise<void> => whileHeld(slot, work(alone));
    if (!isToBeAlone(attempt)) return this.#gate.runBeside(heldWork);
    // With doubling times, even a slow event that kills its process eventually does so while it is alone.
    const aloneMs = settings.quarantineMs * 2 ** (head.openCount - 1);
    await this.#gate.runAlone(heldWork, Math.min(aloneMs, aloneMaxMs));
  }
}

/**
 * Resolves when work has ended, or its slot is lost. In that case the call is abandoned, and its end is still to be written to a
 * database that may be down; attempts in other databases do not wait for that.
 */
async function whileHeld({ lost }: HeldSlot, work: Promise<void>): Promise<void> {
  const gone = Promise.withResolvers<unknown>();
  if (lost.aborted) gone.resolve(undefined);
  lost.addEventListener('abort', gone.resolve);
  try {
    await Promise.race([work, gone.promise]);
  } finally {
    lost.removeEventListener('abort', gone.resolve);
  }
}

function headKey({ handler, event }: BlockedHead): string {
  return `${handler}\0${modelKey(event)}`;
}

/**
 * Whether a process ended during an attempt at this event: only if the next attempt is alone is it known which event ends the
 * next process.
 */
function isToBeAlone({ head }: Attempt): boolean {
  return head.openCount > 0;
}

/** Attempts that must be alone come before those that may run in parallel, and suspects before the others. */
function rank(attempt: Attempt): number {
  if (isToBeAlone(attempt)) return 0;
  return attempt.head.suspect ? 1 : 2;
}

function countBy<Key>(attempts: Iterable<Attempt>, keyOf: (attempt: Attempt) => Key): Map<Key, number> {
  const counts = new Map<Key, number>();
  for (const attempt of attempts) counts.set(keyOf(attempt), (counts.get(keyOf(attempt)) ?? 0) + 1);
  return counts;
}
