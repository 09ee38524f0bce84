import type { BlockedEvents, BlockedHead } from '@framework/core/adapter';

import { eventBytesMax } from '../delivery-settings.js';
import type { HeldSlot } from '../slots/cursor-saver.js';
import type { LeaseKeeper } from '../slots/lease-keeper.js';
import { type WorkerContext, WakeSignal, storeBackoff } from '../worker-context.js';
import { modelKey } from './keyed-queue.js';
import type { QuarantineGate } from './quarantine.js';
import type { Subscription } from './subscription.js';

/** The longest timer. */
const aloneMaxMs = 2 ** 31 - 1;

/** A blocked event that one of the subscriptions can try now. */
interface Attempt {
  readonly key: string;
  readonly head: BlockedHead;
  readonly slot: HeldSlot;
  readonly subscription: Subscription;
}

/** Finds blocked events that are due, in one database, and has them tried by the subscriptions of their handlers. */
export class RetryLoop {
  readonly #context: WorkerContext;
  readonly #blocked: Pick<BlockedEvents, 'dueHeads' | 'suspectPlaces' | 'nextDueMs'>;
  readonly #keeper: LeaseKeeper;
  readonly #subscriptions: ReadonlyMap<string, Subscription>;
  readonly #gate: QuarantineGate;
  readonly #wakeSignal: WakeSignal;
  /** Those that are being made, and those that are next, by handler and model. */
  readonly #taken = new Map<string, Attempt>();
  /** Of each handler as many as may run, so that none of its places waits for the database. */
  #next: ReadonlySet<Attempt> = new Set();
  /** Models whose last attempt has ended, and of which it is not known whether more is blocked. */
  readonly #ended = new Map<string, Attempt>();

  constructor(options: {
    readonly context: WorkerContext;
    readonly blocked: Pick<BlockedEvents, 'dueHeads' | 'suspectPlaces' | 'nextDueMs'>;
    readonly keeper: LeaseKeeper;
    readonly subscriptions: ReadonlyMap<string, Subscription>;
    /** The same for all databases of a process. */
    readonly gate: QuarantineGate;
  }) {
    this.#context = options.context;
    this.#blocked = options.blocked;
    this.#keeper = options.keeper;
    this.#subscriptions = options.subscriptions;
    this.#gate = options.gate;
    this.#wakeSignal = new WakeSignal(options.context.clock);
  }

  /** Looks at once, because something may be due. */
  wake(): void {
    this.#wakeSignal.wake();
  }

  /**
   * Looks for what is due until delivery stops; while no model is known to be blocked, only once in a lease's time: a statement that
   * blocks may reach the database after it was given up, and its event was handled.
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

  /** @returns after how many milliseconds the next round is due */
  async #round(): Promise<number> {
    const { settings } = this.#context;
    await this.#release();
    // What is asked about was true before the answer was made.
    const ended = new Map(this.#ended);
    const heads = await this.#dueHeads();
    const due = this.#sharedOut(heads.flatMap((head) => this.#attempt(head) ?? []));
    this.#check(ended, heads);
    this.#take(due);
    // There may be room for more than one statement looks at.
    if (due.length >= settings.dueMax) this.#wakeSignal.wake();
    if (this.#taken.size > 0) return settings.pollMinMs;
    const places = this.#keeper.slots.filter((held) => this.#subscriptionOf(held)?.paused === false);
    const nextDueMs = (await this.#blocked.nextDueMs(places)) ?? Infinity;
    return Math.min(settings.blockedPollMs, nextDueMs > 0 ? nextDueMs : settings.pollMinMs);
  }

  /** Asks for as many as can be started soon, of each handler, however many others of it or of another one are due. */
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
   * The subscription of a slot, once it has started there. Before that it still reads which models have blocked events: one whose last event was
   * handled meanwhile would stay known as blocked.
   */
  #subscriptionOf(held: HeldSlot): Subscription | undefined {
    const subscription = this.#subscriptions.get(held.handler);
    return subscription?.slots.has(held) === true ? subscription : undefined;
  }

  #attempt(head: BlockedHead): Attempt | undefined {
    const slot = this.#keeper.get(head.token);
    const subscription = slot && this.#subscriptionOf(slot);
    if (subscription === undefined || slot === undefined) return undefined;
    return { key: `${head.handler} ${modelKey(head.event)}`, head, slot, subscription };
  }

  /** Leaves to later rounds what would only wait for others of its slot, and keep those of other slots out. */
  #sharedOut(due: readonly Attempt[]): readonly Attempt[] {
    const counts = countBy(this.#taken.values(), ({ slot }) => slot);
    return due.filter(({ subscription, slot }) => {
      const count = counts.get(slot) ?? 0;
      counts.set(slot, count + 1);
      return count < subscription.dispatch.retriesOfSlotMax;
    });
  }

  /** Has models looked at whose attempt has ended and that have no next event that is due. */
  #check(ended: ReadonlyMap<string, Attempt>, heads: readonly BlockedHead[]): void {
    const due = new Set(heads.map((head) => `${head.handler} ${modelKey(head.event)}`));
    for (const [key, { subscription, head, slot }] of ended) {
      // The slot may have been lost, and had again under the same token, since the attempt began.
      const held = this.#keeper.get(slot.token);
      if (held !== undefined && this.#subscriptionOf(held) === undefined) continue;
      this.#ended.delete(key);
      if (held !== undefined && !due.has(key)) subscription.dispatch.check(head.event, held);
    }
  }

  /** Lets slots out of quarantine in which no suspect is left to be tried; retries, of which there is no end, hold up none. */
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

  /** Starts those for which there is room. */
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
      // What is left belongs to whoever delivers next.
      if (stopping.aborted) return;
      this.#ended.set(key, attempt);
      this.#start();
      if (![...this.#next].some((each) => each.subscription === subscription)) this.#wakeSignal.wake();
    };
    const heldWork = (alone?: AbortSignal): Promise<void> => whileHeld(slot, work(alone));
    if (!isToBeAlone(attempt)) return this.#gate.runBeside(heldWork);
    // However slow it is, the process ends one day while it is alone, or not at all.
    const aloneMs = settings.quarantineMs * 2 ** (head.openCount - 1);
    await this.#gate.runAlone(heldWork, Math.min(aloneMs, aloneMaxMs));
  }
}

/**
 * Resolves when work has ended, or its slot is lost: the call is given up then, and what is left is told to a database that may be
 * down, for which those of other databases do not wait.
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

/** Whether its process ended during an attempt: only alone is it known which event ends the next one. */
function isToBeAlone({ head }: Attempt): boolean {
  return head.openCount > 0;
}

/** Who is to be alone goes before those who would be beside, and suspects before the others. */
function rank(attempt: Attempt): number {
  if (isToBeAlone(attempt)) return 0;
  return attempt.head.suspect ? 1 : 2;
}

function countBy<Key>(attempts: Iterable<Attempt>, keyOf: (attempt: Attempt) => Key): Map<Key, number> {
  const counts = new Map<Key, number>();
  for (const attempt of attempts) counts.set(keyOf(attempt), (counts.get(keyOf(attempt)) ?? 0) + 1);
  return counts;
}
