import type { Clock, ShardIdentifier } from '@framework/core';
import type { LeaseRenewal, SlotLeases } from '@framework/core/adapter';

import { type WorkerContext, StoreBackoff, WakeSignal } from '../worker-context.js';
import { HeldSlot } from './held-slot.js';

/** Slots of another process are requested this long after its leases end, so that the database sees that they have ended. */
const marginMs = 50;

/**
 * Why leases were lost. `expired`: they were not renewed in time, because the database did not answer, or the process stalled.
 * `taken`: the database refused a write under them, because another process holds the slots, or a failover has lost the leases.
 */
export type LeaseLossCause = 'expired' | 'taken';

/** Slots of one database in which a process has stopped working, although it did not give them back. */
export interface LeaseLoss {
  readonly shards: readonly ShardIdentifier[];
  readonly cause: LeaseLossCause;
  /** The lost slots of each handler, by its durable name. */
  readonly slotsByHandler: ReadonlyMap<string, readonly number[]>;
}

/** Called when leases are lost, once for all that are lost together. */
export type LeaseLossHook = (loss: LeaseLoss) => void;

interface LeaseKeeperOptions {
  readonly context: WorkerContext;
  readonly leases: Pick<SlotLeases, 'renew' | 'recovered' | 'release'>;
  readonly processId: string;
  /** The permanent ids of the handlers that this process has now. */
  readonly handlers: () => readonly string[];
  readonly shards: readonly string[];
  readonly watch: Pick<EventLoopMonitor, 'now' | 'stalledSince'>;
  /** Called after each renewal with the new leases; lost ones have been reported before. */
  readonly onRenewed: (gained: readonly HeldSlot[]) => void;
  /** Called with slots beyond the share of this process, which gives them back when it has finished there. */
  readonly onSurplus: (slots: readonly HeldSlot[]) => void;
  /** Called with slots that were lost together; not with those that the process gives back. */
  readonly onLost: (slots: readonly HeldSlot[], cause: LeaseLossCause) => void;
}

/** Holds this process's leases of one database: renews them, and drops them in time when that fails. */
export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  readonly #wakeSignal: WakeSignal;
  readonly #backoff: StoreBackoff;
  /** The slots that are held, by their tokens. */
  readonly #slots = new Map<string, HeldSlot>();
  /** The tokens of leases that the next renewal gives back. */
  readonly #givenBack = new Set<string>();
  #alone = false;
  #renewedMs = Infinity;
  #cancelExpiry: () => void = () => undefined;
  #stopped = false;
  /** Settles when no renewal is in progress. */
  #renewing: Promise<unknown> = Promise.resolve();

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
    this.#wakeSignal = new WakeSignal(options.context.clock);
    this.#backoff = new StoreBackoff(options.context);
  }

  /** The slots that are held now, each for one handler. */
  get slots(): readonly HeldSlot[] {
    return [...this.#slots.values()];
  }

  /** Whether no other process was delivering here when the leases were last renewed. */
  get alone(): boolean {
    return this.#alone;
  }

  get(token: string): HeldSlot | undefined {
    return this.#slots.get(token);
  }

  /** Renews until it is stopped. */
  async run(): Promise<void> {
    while (!this.#stopped) {
      const renewing = this.#renew();
      this.#renewing = renewing;
      await this.#wakeSignal.wait(await renewing);
    }
  }

  /** Renews at once, because the process has other handlers now. */
  wake(): void {
    this.#wakeSignal.wake();
  }

  /** Drops leases by their tokens, because the database reports them as lost or they have expired; requests new ones. */
  drop(tokens: readonly string[], cause: LeaseLossCause = 'taken'): void {
    if (tokens.length === 0) return;
    const lost = tokens.flatMap((token) => this.#slots.get(token) ?? []);
    for (const token of tokens) this.#lose(token);
    this.#wakeSignal.wake();
    if (lost.length > 0) this.#options.onLost(lost, cause);
  }

  /** Gives back slots where everything is finished and saved. */
  async giveBack(slots: readonly HeldSlot[]): Promise<void> {
    await this.#tellRecovered(this.#recovered(slots));
    for (const { token, held } of slots) {
      if (!held) continue;
      this.#givenBack.add(token);
      this.#lose(token);
    }
    this.#wakeSignal.wake();
  }

  /** Stops renewing, and gives every slot back. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#wakeSignal.wake();
    this.#cancelExpiry();
    const recovered = this.#recovered();
    for (const token of this.#slots.keys()) this.#lose(token);
    // A renewal in progress would take the slots again after they were given back.
    await this.#renewing;
    const { leases, processId, context } = this.#options;
    await this.#tellRecovered(recovered);
    await leases.release(processId).catch(context.onError);
  }

  /** Slots that have recovered, but are abandoned as far as the database knows. */
  #recovered(slots = this.slots): readonly HeldSlot[] {
    return slots.filter((slot) => slot.abandoned && slot.hasRecovered);
  }

  /** A database that refuses it must keep the process neither from renewing its leases nor from giving them back. */
  async #tellRecovered(slots: readonly HeldSlot[]): Promise<void> {
    if (slots.length === 0) return;
    const { leases, context } = this.#options;
    try {
      await leases.recovered(slots.map(({ token }) => token));
      for (const slot of slots) slot.abandoned = false;
    } catch (error) {
      context.onError(error);
    }
  }

  /** @returns the time until the next renewal is due, in milliseconds */
  async #renew(): Promise<number> {
    const { leases, processId, handlers, shards, context } = this.#options;
    const { clock, onError } = context;
    const { leaseMs } = context.settings;
    const startedMs = clock.elapsedMs();
    const givenBack = [...this.#givenBack];
    try {
      const renewal = await leases.renew(processId, handlers(), leaseMs, shards, givenBack);
      this.#backoff.succeeded();
      // An answer that took longer than a lease says nothing about the present.
      if (clock.elapsedMs() - startedMs < leaseMs) this.#take(renewal, startedMs);
      for (const token of givenBack) this.#givenBack.delete(token);
      await this.#tellRecovered(this.#recovered());
      // A living process renews its leases before they end; those of a dead one are requested as soon as they have ended.
      return Math.min(leaseMs / 3, (renewal.othersEndInMs ?? Infinity) + marginMs);
    } catch (error) {
      onError(error);
      // If the renewal took a long time to fail, the leases may have little time left.
      return Math.min(leaseMs / 3, this.#backoff.failedMs());
    }
  }

  #take({ leases, alone }: LeaseRenewal, startedMs: number): void {
    if (this.#stopped) return;
    const { watch, context, onRenewed, onSurplus } = this.#options;
    this.#alone = alone;
    const tokens = new Set(leases.map(({ token }) => token));
    for (const token of this.#slots.keys()) if (!tokens.has(token)) this.#lose(token);
    // An event beyond the cursors may have stalled the event loop, just as one may kill a process.
    const stood = watch.stalledSince(this.#renewedMs);
    this.#renewedMs = watch.now();
    const gained = leases
      .filter(({ token }) => !this.#slots.has(token) && !this.#givenBack.has(token))
      .map((lease) => new HeldSlot({ ...lease, abandoned: lease.abandoned || stood }));
    for (const each of gained) this.#slots.set(each.token, each);
    const left = leases.flatMap(({ token, surplus }) => {
      const slot = surplus || context.stopping.aborted ? this.#slots.get(token) : undefined;
      return slot === undefined || slot.isLeaving ? [] : [slot];
    });
    for (const each of left) each.leave();
    // Counted from the request: the database counts from its answer, which came later.
    this.#expire(startedMs + context.settings.leaseMs);
    onRenewed(gained);
    if (left.length > 0) onSurplus(left);
  }

  #lose(token: string): void {
    this.#slots.get(token)?.lose();
    this.#slots.delete(token);
  }

  /** Drops all slots when the clock's elapsed time reaches `atMs`, unless the leases are renewed before that. */
  #expire(atMs: number): void {
    const { clock } = this.#options.context;
    this.#cancelExpiry();
    this.#cancelExpiry = clock.after(atMs - clock.elapsedMs(), () =>
      this.drop([...this.#slots.keys()], 'expired'),
    );
  }
}

/**
 * Notices when the event loop of the process stops for so long that leases may have been lost for that reason alone, however fast
 * the database answers.
 */
export class EventLoopMonitor {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  #seenMs: number;
  #stalledMs = -Infinity;

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    this.#seenMs = clock.elapsedMs();
  }

  async run(ended: AbortSignal): Promise<void> {
    this.#seenMs = this.#clock.elapsedMs();
    while (!ended.aborted) {
      await this.#clock.sleep(this.#leaseMs / 3, ended);
      this.now();
    }
  }

  /** The current instant, for a later {@link EventLoopMonitor.stalledSince}. */
  now(): number {
    const nowMs = this.#clock.elapsedMs();
    // Renewals begin when a third of a lease has passed: two more thirds are too long.
    if (nowMs - this.#seenMs > (this.#leaseMs * 2) / 3) this.#stalledMs = nowMs;
    this.#seenMs = nowMs;
    return nowMs;
  }

  /** Whether the event loop has stopped since an instant for so long that leases may have been lost. */
  stalledSince(instantMs: number): boolean {
    this.now();
    return this.#stalledMs > instantMs;
  }
}
