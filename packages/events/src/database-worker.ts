import {
  type ActionExecutor,
  type DatabaseDelivery,
  InvariantViolation,
  type ModelClass,
} from '@framework/core';
import { HandlerFlow } from './flow/handler-flow.js';
import { modelKey } from './flow/flow-work.js';
import { EnvelopeFactory } from './handler/envelope-factory.js';
import type { EventHandlerRegistry } from './handler/event-handler-registry.js';
import type { HeldSlot } from './lease/held-slot.js';
import { LeaseKeeper } from './lease/lease-keeper.js';
import { CursorSaver } from './log/cursor-saver.js';
import { LogReader } from './log/log-reader.js';
import { ParkedCheck } from './parked/parked-check.js';
import { Parker } from './parked/parker.js';
import { RetryLoop } from './parked/retry-loop.js';
import type { SuspectGate } from './parked/suspect-gate.js';
import { Alarm } from './waking/alarm.js';
import { CommitHints } from './waking/commit-hints.js';
import { type WorkerContext, storeBackoff } from './worker-context.js';

/** What the worker of one database is made of. */
export interface DatabaseWorkerOptions {
  readonly database: DatabaseDelivery;
  readonly context: Omit<WorkerContext, 'store' | 'stopping' | 'ended'>;
  readonly executor: Pick<ActionExecutor, 'execute'>;
  readonly handlers: EventHandlerRegistry;
  readonly models: readonly ModelClass<unknown>[];
  readonly processId: string;
  readonly gate: SuspectGate;
}

/** Delivers the events of one database to all handlers; depends on no other database. */
export class DatabaseWorker {
  readonly #database: DatabaseDelivery;
  readonly #handlers: EventHandlerRegistry;
  readonly #context: WorkerContext;
  readonly #stopping = new AbortController();
  readonly #ended = new AbortController();
  readonly #keeper: LeaseKeeper;
  readonly #reader: LogReader;
  readonly #saver: CursorSaver;
  readonly #retries: RetryLoop;
  readonly #hints: CommitHints;
  readonly #poll: Alarm;
  readonly #flows: ReadonlyMap<string, HandlerFlow>;

  constructor(options: DatabaseWorkerOptions) {
    const { database, handlers } = options;
    this.#database = database;
    this.#handlers = handlers;
    const stopping = this.#stopping.signal;
    const context = { ...options.context, store: database.store, stopping, ended: this.#ended.signal };
    this.#context = context;
    const onLost = (slots: readonly number[]): void => this.#keeper.drop(slots);
    const onParked = (): void => this.#retries.wake();
    this.#keeper = new LeaseKeeper(context, options.processId, (gained) => this.#renewed(gained));
    this.#reader = new LogReader(context);
    this.#saver = new CursorSaver(context, onLost);
    this.#poll = new Alarm(context.clock);
    const { clock, onError, settings } = context;
    this.#hints = new CommitHints({
      store: database.store,
      intervalMs: settings.notifyCoalesceMs,
      clock,
      onError,
    });
    const around = {
      context,
      executor: options.executor,
      envelopes: new EnvelopeFactory(database.shards, options.models),
      reader: this.#reader,
      saver: this.#saver,
      parker: new Parker(context, onLost),
      check: new ParkedCheck(context),
      onLost,
      onParked,
    };
    this.#flows = new Map(handlers.handlers.map((each) => [each.name, new HandlerFlow(each, around)]));
    this.#retries = new RetryLoop({ context, keeper: this.#keeper, flows: this.#flows, gate: options.gate });
  }

  /** Begins; a database that is down is tried again until it is not. */
  start(): void {
    void this.#guarded(() => this.#run());
  }

  /** Looks at the log at once, because this process has committed something, and tells other processes. */
  committed(): void {
    this.#poll.ring();
    // Nobody else waits for the hint when this process works on the whole log.
    if (this.#keeper.slots.length < this.#database.store.slotCount) this.#hints.hint();
  }

  /** Finishes what was read, for a bounded time, saves how far it came, and gives the slots back. */
  async stop(timeoutMs: number): Promise<void> {
    this.#stopping.abort();
    this.#poll.ring();
    this.#retries.wake();
    const flows = [...this.#flows.values()];
    for (const flow of flows) flow.stop();
    await this.#within(timeoutMs, Promise.all(flows.map((flow) => flow.idle())));
    this.#ended.abort();
    for (const flow of flows) flow.drop(new Error('Delivery has stopped'));
    this.#saver.stop();
    this.#hints.stop();
    await this.#within(
      timeoutMs,
      this.#guarded(() => this.#saver.save(true)).then(() => this.#keeper.stop()),
    );
  }

  async #run(): Promise<void> {
    const { store, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    const registrations = this.#handlers.handlers.map(({ name, options }) => ({
      name,
      aliases: options.aliases ?? [],
      startFrom: options.startFrom ?? 'now',
    }));
    for (let registered = false; !registered && !this.#stopping.signal.aborted;) {
      try {
        await store.register(registrations);
        registered = true;
      } catch (error) {
        onError(error);
        await backoff.failed(this.#stopping.signal);
      }
    }
    if (this.#stopping.signal.aborted) return;
    const loops = [
      () => this.#keeper.run(),
      () => this.#saver.run(),
      () => this.#retries.run(),
      () => this.#pollLog(),
      () => this.#listen(),
      () => this.#keepPartitions(),
      ...[...this.#flows.values()].map((flow) => () => flow.run()),
    ];
    await Promise.all(loops.map((loop) => this.#guarded(loop)));
  }

  async #pollLog(): Promise<void> {
    const { pollMinMs, pollMaxMs } = this.#context.settings;
    let waitMs = pollMinMs;
    let foundCount = 0;
    while (!this.#stopping.signal.aborted) {
      const rung = await this.#poll.wait(waitMs);
      const busy = rung || this.#reader.foundCount > foundCount;
      foundCount = this.#reader.foundCount;
      waitMs = busy ? pollMinMs : Math.min(pollMaxMs, waitMs * 2);
      this.#reader.refresh();
      for (const flow of this.#flows.values()) flow.wake();
    }
  }

  /** Hints only save time: where they do not arrive, polling finds everything. */
  async #listen(): Promise<void> {
    const { store, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    while (!this.#stopping.signal.aborted) {
      try {
        const unlisten = await store.listen(() => this.#poll.ring());
        await aborted(this.#stopping.signal);
        return await unlisten();
      } catch (error) {
        onError(error);
        await backoff.failed(this.#stopping.signal);
      }
    }
  }

  async #keepPartitions(): Promise<void> {
    const { store, settings, clock, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    while (!this.#stopping.signal.aborted) {
      try {
        await store.createPartitions();
        if (settings.retentionMs > 0) await store.dropPartitions(settings.retentionMs);
        backoff.succeeded();
        await clock.sleep(settings.partitionsMs, this.#stopping.signal);
      } catch (error) {
        onError(error);
        await backoff.failed(this.#stopping.signal);
      }
    }
  }

  #renewed(gained: readonly HeldSlot[]): void {
    const held = this.#keeper.slots;
    const [first] = held;
    if (gained.length > 0) void this.#guarded(() => this.#load(gained));
    else if (first !== undefined) void this.#guarded(() => this.#loadPaused(first));
  }

  /** Learns where the handlers stand in new slots; goes on until it has, or the slots are lost. */
  async #load(gained: readonly HeldSlot[]): Promise<void> {
    const { store, onError, ended } = this.#context;
    const backoff = storeBackoff(this.#context);
    for (;;) {
      const held = gained.filter((slot) => slot.held);
      if (held.length === 0 || ended.aborted) return;
      const slots = held.map(({ slot }) => slot);
      try {
        const [cursors, models] = await Promise.all([store.cursors(slots), store.parkedModels(slots)]);
        const parked = Map.groupBy(models, ({ handler, slot }) => `${handler} ${slot}`);
        const leases = new Map(held.map((slot) => [slot.slot, slot]));
        for (const { handler, slot, cursor, paused } of cursors) {
          const flow = this.#flows.get(handler);
          const lease = leases.get(slot);
          if (flow === undefined || lease?.held !== true) continue;
          flow.setPaused(paused);
          flow.gain(lease, cursor, (parked.get(`${handler} ${slot}`) ?? []).map(modelKey));
        }
        this.#assertComplete(cursors.length, slots.length);
        return this.#retries.wake();
      } catch (error) {
        onError(error);
        await backoff.failed(ended);
      }
    }
  }

  async #loadPaused({ slot }: HeldSlot): Promise<void> {
    for (const { handler, paused } of await this.#context.store.cursors([slot])) {
      const flow = this.#flows.get(handler);
      if (flow?.paused === true && !paused) this.#retries.wake();
      flow?.setPaused(paused);
    }
  }

  #assertComplete(cursorCount: number, slotCount: number): void {
    if (cursorCount >= this.#flows.size * slotCount) return;
    this.#context.onError(
      new InvariantViolation(
        `The database has ${cursorCount} cursors in ${slotCount} slots for ${this.#flows.size} handlers: some are delivered nothing there`,
      ),
    );
  }

  async #within(timeoutMs: number, work: Promise<unknown>): Promise<void> {
    const over = new AbortController();
    await Promise.race([work, this.#context.clock.sleep(timeoutMs, over.signal)]);
    over.abort();
  }

  async #guarded(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#context.onError(error);
    }
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
