import type { SlotLease, SlotLeases } from '@framework/core';
import { elapsedMs } from '../delivery-clock.js';
import { Alarm } from '../waking/alarm.js';
import type { WorkerContext } from '../worker-context.js';
import { HeldSlot } from './held-slot.js';

/** Holds this process's slots of one database: renews their leases, and drops them in time when that fails. */
export class LeaseKeeper {
  readonly #context: WorkerContext;
  readonly #leases: Pick<SlotLeases, 'renew' | 'release'>;
  readonly #processId: string;
  readonly #onRenewed: (gained: readonly HeldSlot[]) => void;
  readonly #alarm: Alarm;
  readonly #slots = new Map<number, HeldSlot>();
  #expiry = new AbortController();
  #stopped = false;
  /** Settles when no renewal is under way. */
  #renewing: Promise<void> = Promise.resolve();

  constructor(options: {
    readonly context: WorkerContext;
    readonly leases: Pick<SlotLeases, 'renew' | 'release'>;
    readonly processId: string;
    /** Called after each renewal with the slots that are new; lost ones have been told before. */
    readonly onRenewed: (gained: readonly HeldSlot[]) => void;
  }) {
    const { context } = options;
    this.#context = context;
    this.#leases = options.leases;
    this.#processId = options.processId;
    this.#onRenewed = options.onRenewed;
    this.#alarm = new Alarm(context.clock);
  }

  /** The slots that are held now. */
  get slots(): readonly HeldSlot[] {
    return [...this.#slots.values()];
  }

  /** The lease of a slot, if it is held. */
  get(slot: number): HeldSlot | undefined {
    return this.#slots.get(slot);
  }

  /** Renews until it is stopped. */
  async run(): Promise<void> {
    const { settings, onError } = this.#context;
    while (!this.#stopped) {
      this.#renewing = this.#renew().catch(onError);
      await this.#renewing;
      if (!this.#stopped) await this.#alarm.wait(settings.leaseMs / 3);
    }
  }

  /** Drops slots that the database says are another's now, and asks for leases anew. */
  drop(slots: readonly number[]): void {
    for (const slot of slots) {
      this.#slots.get(slot)?.lose();
      this.#slots.delete(slot);
    }
    if (slots.length > 0) this.#alarm.ring();
  }

  /** Stops renewing, and gives every slot back. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#alarm.ring();
    this.#expiry.abort();
    this.drop([...this.#slots.keys()]);
    // One that is under way would take the slots again after they were given back.
    await this.#renewing;
    await this.#leases.release(this.#processId).catch(this.#context.onError);
  }

  async #renew(): Promise<void> {
    const { settings, clock } = this.#context;
    const startedMs = elapsedMs(clock);
    const leases = await this.#leases.renew(this.#processId, settings.leaseMs);
    // An answer that took longer than a lease says nothing about now.
    if (elapsedMs(clock) - startedMs < settings.leaseMs) this.#take(leases, startedMs);
  }

  #take(leases: readonly SlotLease[], startedMs: number): void {
    if (this.#stopped) return;
    const tokens = new Map(leases.map(({ slot, token }) => [slot, token]));
    for (const { slot, token } of this.slots) {
      if (tokens.get(slot) === token) continue;
      this.#slots.get(slot)?.lose();
      this.#slots.delete(slot);
    }
    const gained = leases.filter(({ slot }) => !this.#slots.has(slot)).map((lease) => new HeldSlot(lease));
    for (const each of gained) this.#slots.set(each.slot, each);
    void this.#expire(startedMs + this.#context.settings.leaseMs);
    this.#onRenewed(gained);
  }

  /** Drops everything when no renewal came before the leases ended. */
  async #expire(atMs: number): Promise<void> {
    const { clock } = this.#context;
    this.#expiry.abort();
    const expiry = (this.#expiry = new AbortController());
    await clock.sleep(atMs - elapsedMs(clock), expiry.signal);
    if (!expiry.signal.aborted) this.drop([...this.#slots.keys()]);
  }
}
