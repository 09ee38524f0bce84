import type { ActionExecutor, ModelClass, ShardIdentifier } from '@framework/core';
import type { DatabaseDelivery, DeliveryStore, EventFeed, KnownHandler } from '@framework/core/adapter';

import type { AbandonedCalls } from './call/call-deadlines.js';
import { eventBytesMax } from './delivery-settings.js';
import type { EventHandlerRegistry, RegisteredHandler } from './handler/event-handler-registry.js';
import { HandlerRegistrar, isAway, isRefusal } from './handler/handler-registrar.js';
import { EnvelopeFactory } from './handler/row-envelope.js';
import type { DatabaseFailure } from './operator/blocked-page.js';
import { onPause } from './operator/delivery-operator.js';
import { CursorLoader } from './subscription/cursor-loader.js';
import { type SlotWork, handOver } from './subscription/hand-over.js';
import { CursorSaver } from './slots/cursor-saver.js';
import { LeaseKeeper, type LeaseLossHook, LoopWatch } from './slots/lease-keeper.js';
import { blockedWrites } from './subscription/batched-writes.js';
import type { SubscriptionDependencies } from './subscription/event-dispatch.js';
import { handlerPolicy } from './subscription/event-step.js';
import { LogPoll, LogReader, keepPartitions } from './subscription/log-reader.js';
import type { QuarantineGate } from './subscription/quarantine.js';
import { RetryLoop } from './subscription/retry-loop.js';
import { Subscription } from './subscription/subscription.js';
import { CommitNotifications, listenForNotifications } from './notifications.js';
import { type WorkerContext, OutageReport, untilAborted, untilDone, within } from './worker-context.js';
import type { HeldSlot } from './slots/held-slot.js';

/** What the worker of one database needs. */
export interface DatabaseWorkerOptions {
  readonly database: DatabaseDelivery;
  readonly context: Omit<WorkerContext, 'stopping' | 'ended'>;
  readonly executor: Pick<ActionExecutor, 'execute'>;
  readonly handlers: EventHandlerRegistry;
  readonly models: readonly ModelClass<unknown>[];
  readonly processId: string;
  /** The shards of all databases of the process. */
  readonly knownShards: readonly string[];
  readonly gate: QuarantineGate;
  readonly abandoned: AbandonedCalls;
  /** Called at the end of an outage that was reported, with the shards of the database; never throws. */
  readonly onRecovered: (shards: readonly ShardIdentifier[]) => void;
  /** Called when leases are lost; never throws. */
  readonly onLeaseLost: LeaseLossHook;
}

/** Handlers that receive nothing from a database yet. */
export interface StartFailure extends DatabaseFailure {
  /** The names of the handlers that get none of its events yet. */
  readonly handlers: readonly string[];
}

/** Delivers the events of one database to all handlers, independently of every other database. */
export class DatabaseWorker {
  readonly #database: DatabaseDelivery;
  readonly #store: DeliveryStore;
  readonly #handlers: EventHandlerRegistry;
  readonly #context: WorkerContext;
  readonly #stopping = new AbortController();
  readonly #ended = new AbortController();
  readonly #outage: OutageReport;
  readonly #watch: LoopWatch;
  readonly #keeper: LeaseKeeper;
  readonly #loader: CursorLoader;
  readonly #saver: CursorSaver;
  readonly #retries: RetryLoop;
  readonly #notifications: CommitNotifications;
  readonly #poll: LogPoll;
  /** The subscriptions, by the permanent ids of their handlers, which the database assigns when they are registered. */
  readonly #subscriptions = new Map<string, Subscription>();
  readonly #registrar: HandlerRegistrar;
  readonly #slotWork: SlotWork;
  readonly #around: SubscriptionDependencies;
  /** The logs of the handlers with a source of their own, by their permanent ids. */
  readonly #fedLogs = new Map<string, { readonly reader: LogReader; readonly feed: EventFeed }>();
  readonly #registered = Promise.withResolvers<void>();
  /** Called if the database was opened, but does not register all handlers. */
  readonly #onRefused = new Set<(reason: unknown) => void>();
  /** Whether a handler has its position, so that the worker may request leases. */
  #hasBegun = false;
  #refreshing = false;
  #ignorePauses: () => void = () => undefined;

  /** @throws InvariantViolationError `invariant-violation` when a handler declares a limit that is out of range */
  constructor(options: DatabaseWorkerOptions) {
    const { database, executor, handlers, processId, knownShards, gate } = options;
    const { store, shards } = database;
    const { leases, cursors, log, blocked } = store;
    const outage = new OutageReport({
      onError: options.context.onError,
      onRecovered: () => options.onRecovered(shards),
    });
    this.#outage = outage;
    const onError = (error: unknown): void => outage.failed(error);
    const context = {
      ...options.context,
      onError,
      stopping: this.#stopping.signal,
      ended: this.#ended.signal,
    };
    const { clock, settings } = context;
    for (const handler of handlers.handlers) handlerPolicy(handler, settings);
    // The rejection is reported to callers who wait for it, and there may be none.
    this.#registered.promise.catch(() => undefined);
    this.#database = database;
    this.#store = store;
    this.#handlers = handlers;
    this.#context = context;
    const onLost = (tokens: readonly string[]): void => this.#keeper.drop(tokens);
    const onBlocked = (): void => this.#retries.wake();
    const onRenewed = (gained: readonly HeldSlot[]): void => this.#renewed(gained);
    const reader = new LogReader(log, settings);
    const watch = new LoopWatch(clock, settings.leaseMs);
    this.#watch = watch;
    this.#keeper = new LeaseKeeper({
      context,
      leases,
      processId,
      shards: knownShards,
      watch,
      onRenewed,
      onSurplus: (slots) => void this.#guarded(() => handOver(slots, this.#slotWork)),
      onLost: (slots, cause) =>
        options.onLeaseLost({ shards, cause, slotsByHandler: this.#slotsByHandler(slots) }),
    });
    this.#saver = new CursorSaver(context, cursors, onLost);
    const writes = blockedWrites(context, blocked, onLost);
    this.#around = {
      context,
      blocked,
      writes,
      executor,
      log,
      envelopes: new EnvelopeFactory(shards, options.models),
      abandoned: options.abandoned,
      reader,
      saver: this.#saver,
      watch,
      onBlocked,
    };
    const subscriptions = this.#subscriptions;
    this.#registrar = new HandlerRegistrar(cursors, handlers.handlers, subscriptions);
    this.#loader = new CursorLoader({
      context,
      cursors,
      blocked,
      settled: () =>
        Promise.all([this.#saver.settled(), ...Object.values(writes).map((write) => write.answered())]),
      subscriptions,
      onBlocked,
    });
    this.#retries = new RetryLoop({ context, blocked, keeper: this.#keeper, subscriptions, gate });
    const [keeper, saver, retries] = [this.#keeper, this.#saver, this.#retries];
    this.#slotWork = { context, keeper, saver, moves: writes.move, retries, subscriptions };
    this.#notifications = new CommitNotifications({
      channel: store.notifications,
      intervalMs: settings.notifyCoalesceMs,
      clock,
      onError,
    });
    const fedLogs = this.#fedLogs;
    this.#poll = new LogPoll({
      context,
      foundCount: () =>
        [...fedLogs.values()].reduce((sum, fed) => sum + fed.reader.foundCount, reader.foundCount),
      look: () => {
        reader.refresh();
        // A live feed reports commits on its own.
        for (const fed of fedLogs.values()) if (!fed.feed.isLive) fed.reader.refresh();
        for (const subscription of subscriptions.values()) subscription.wake();
      },
    });
  }

  /** Begins; if the database is down, it tries again until the database is available. */
  start(): void {
    this.#ignorePauses = onPause(this.#store, (handler, paused) => this.#loader.setPaused(handler, paused));
    void this.#guarded(() => this.#run());
  }

  /**
   * Resolves when every handler has its position in the log; rejects when that is impossible, or when delivery stops before that.
   */
  registered(): Promise<void> {
    return this.#registered.promise;
  }

  /**
   * Resolves like {@link registered}, or with the reason when the database reports that it is unavailable, or does not register
   * a handler in time; rejects in the same cases.
   */
  async settled(): Promise<StartFailure | undefined> {
    const refused = Promise.withResolvers<StartFailure>();
    const { shards } = this.#database;
    const onRefused = (error: unknown): void =>
      refused.resolve({ shards, error, handlers: this.#registrar.missing });
    this.#onRefused.add(onRefused);
    // If this rejects, so does the registration of the handlers, which is awaited below.
    this.#database.ready(onRefused).catch(() => undefined);
    const isRegistered = this.#registered.promise.then(() => undefined);
    return Promise.race([isRegistered, refused.promise]).finally(() => this.#onRefused.delete(onRefused));
  }

  /** Reads the log at once, because this process has committed something, and notifies other processes. */
  committed(): void {
    this.#poll.wake();
    if (!this.#keeper.alone) this.#notifications.notify();
  }

  /** Finishes what was read, within a limited time, saves the cursors, and gives the slots back. */
  async stop(timeoutMs: number): Promise<void> {
    const { clock } = this.#context;
    this.#stopping.abort();
    this.#registered.reject(new Error('Delivery was stopped before its handlers were registered'));
    // The log is read with SQL from here on, and another process can have the stream.
    const sourcesClosed = Promise.all(
      [...this.#fedLogs.keys()].map((id) => this.#guarded(() => this.#closeSource(id))),
    );
    this.#poll.wake();
    this.#retries.wake();
    const subscriptions = [...this.#subscriptions.values()];
    for (const slot of this.#keeper.slots) slot.leave();
    for (const subscription of subscriptions) subscription.stop();
    await within(
      clock,
      timeoutMs,
      Promise.all([
        ...subscriptions.map((subscription) => subscription.dispatch.idle()),
        this.#retries.idle(),
      ]),
    );
    this.#ended.abort();
    for (const subscription of subscriptions) subscription.dispatch.drop(new Error('Delivery has stopped'));
    this.#saver.stop();
    this.#notifications.stop();
    this.#ignorePauses();
    await within(
      clock,
      timeoutMs,
      // Abandoned attempts are taken back first, so that the next holder of the slots does not see them counted.
      within(
        clock,
        timeoutMs / 2,
        Promise.all([
          ...subscriptions.map((subscription) => subscription.dispatch.idle()),
          this.#retries.idle(),
        ]),
      )
        .then(() => within(clock, timeoutMs / 4, this.#around.writes.move.answered()))
        .then(() => this.#guarded(() => this.#saver.save(true)))
        .then(() => sourcesClosed)
        // A database that was unavailable has no leases of this process to give back.
        .then(() => (this.#hasBegun ? this.#keeper.stop() : undefined)),
    );
  }

  async #run(): Promise<void> {
    try {
      await this.#becomeReady();
      await this.#register();
      if (!this.#context.stopping.aborted) this.#registered.resolve();
    } catch (error) {
      this.#registered.reject(error);
      throw error;
    }
  }

  async #deliver(): Promise<void> {
    const context = this.#context;
    this.#hasBegun = true;
    const { notifications, partitions } = this.#store;
    const loops = [
      () => this.#watch.run(this.#ended.signal),
      () => this.#keeper.run([...this.#subscriptions.keys()]),
      () => this.#saver.run(),
      () => this.#retries.run(),
      () => this.#poll.run(),
      () => listenForNotifications(context, notifications, () => this.#poll.wake()),
      () => keepPartitions(context, partitions),
    ];
    await Promise.all(loops.map((loop) => this.#guarded(loop)));
  }

  /** Waits until migrations are applied: before that, every query would be refused. */
  async #becomeReady(): Promise<void> {
    await Promise.race([this.#database.ready(), untilAborted(this.#context.stopping)]);
  }

  /** Registers all handlers. Those that the database does not register for now hold up no others, and join them later. */
  async #register(): Promise<void> {
    const { stopping } = this.#context;
    const outcome = await untilDone(this.#context, stopping, async () => {
      const { ids, error } = await this.#registrar.registerMissing();
      // A source that is opened after a stop would never be closed.
      if (stopping.aborted) return undefined;
      if (isRefusal(error)) return { refusal: error };
      this.#join(ids);
      if (error === undefined) return undefined;
      if (isAway(error) || this.#hasBegun) for (const tell of this.#onRefused) tell(error);
      throw error;
    });
    if (outcome !== undefined) throw outcome.refusal;
  }

  /** Delivers to handlers that the database has registered, given by their permanent ids and names. */
  #join(ids: ReadonlyMap<string, string>): void {
    const joined = this.#handlers.handlers.flatMap((handler) => {
      const id = ids.get(handler.name);
      if (id === undefined || this.#subscriptions.has(id)) return [];
      const subscription = new Subscription({ ...handler, id }, this.#dependencies(handler, id));
      this.#subscriptions.set(id, subscription);
      return [subscription];
    });
    for (const subscription of joined) void this.#guarded(() => subscription.run());
    if (this.#hasBegun) this.#keeper.setHandlers([...this.#subscriptions.keys()]);
    else if (joined.length > 0 || this.#registrar.missing.length === 0) void this.#deliver();
  }

  /** Opens the source of a handler that has one. */
  #dependencies({ options: { source } }: RegisteredHandler, id: string): SubscriptionDependencies {
    if (source === undefined) return this.#around;
    const { store, shards } = this.#database;
    const { clock, settings, onError } = this.#context;
    const feed = source.open({
      store,
      shards,
      handler: id,
      eventBytesMax: eventBytesMax(settings),
      checkMs: settings.sourceCheckMs,
      clock,
      onCommitted: () => {
        reader.refresh();
        this.#subscriptions.get(id)?.wake();
      },
      onError,
    });
    const reader = new LogReader(feed.log, settings);
    this.#fedLogs.set(id, { reader, feed });
    return { ...this.#around, reader };
  }

  async #closeSource(id: string): Promise<void> {
    const fed = this.#fedLogs.get(id);
    this.#fedLogs.delete(id);
    await fed?.feed.close();
  }

  #renewed(gained: readonly HeldSlot[]): void {
    this.#outage.succeeded();
    if (gained.length > 0) void this.#guarded(() => this.#loader.start(gained));
    else if (!this.#refreshing && !this.#stopping.signal.aborted) void this.#guarded(() => this.#refresh());
  }

  /** Only one runs at a time, so that unknown handlers are registered only once. */
  async #refresh(): Promise<void> {
    this.#refreshing = true;
    try {
      const known = await this.#loader.refresh();
      const losses = this.#registrar.lossesIn(known);
      if (losses.length > 0) await this.#registerAgain(losses, known);
    } finally {
      this.#refreshing = false;
    }
  }

  async #registerAgain(losses: readonly string[], known: readonly KnownHandler[]): Promise<void> {
    const { ids, error } = await this.#registrar.registerAgain(known);
    if (this.#stopping.signal.aborted) return;
    if (error !== undefined) throw error;
    for (const loss of losses) this.#context.onError(new Error(loss));
    const current = new Set(ids.values());
    for (const [id, subscription] of this.#subscriptions) {
      if (current.has(id)) continue;
      subscription.stop();
      this.#subscriptions.delete(id);
      void this.#guarded(() => this.#closeSource(id));
    }
    this.#join(ids);
  }

  #slotsByHandler(slots: readonly HeldSlot[]): ReadonlyMap<string, readonly number[]> {
    const byId = Map.groupBy(slots, ({ handler }) => handler);
    return new Map(
      [...byId].map(([id, lost]) => [
        this.#subscriptions.get(id)?.names[0] ?? id,
        lost.map(({ slot }) => slot),
      ]),
    );
  }

  async #guarded(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#context.onError(error);
    }
  }
}
