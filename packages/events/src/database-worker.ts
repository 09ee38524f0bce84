import type { ActionExecutor, ModelClass, ShardIdentifier } from '@framework/core';
import type { DatabaseDelivery, EventFeed, KnownHandler } from '@framework/core/adapter';

import type { AbandonedCalls } from './call/call-deadlines.js';
import { eventBytesMax } from './delivery-settings.js';
import type { EventHandlerRegistry, RegisteredHandler } from './handler/event-handler-registry.js';
import { HandlerRegistrar, isAway, isRefusal } from './handler/handler-registrar.js';
import { EnvelopeFactory } from './handler/row-envelope.js';
import type { DatabaseFailure } from './operator/blocked-page.js';
import { onPause } from './operator/delivery-operator.js';
import { CursorLoader } from './subscription/cursor-loader.js';
import { CursorSaver } from './slots/cursor-saver.js';
import { LeaseKeeper, type LeaseLossHook, EventLoopMonitor } from './slots/lease-keeper.js';
import { blockedWrites } from './subscription/batched-writes.js';
import { LogPoll, LogReader, keepPartitions } from './subscription/log-reader.js';
import type { QuarantineGate } from './subscription/quarantine.js';
import { RetryLoop } from './subscription/retry-loop.js';
import { type SubscriptionDependencies, handlerPolicy } from './subscription/subscription-dependencies.js';
import { Subscription } from './subscription/subscription.js';
import { CommitNotifications, listenForNotifications } from './notifications.js';
import { type WorkerContext, OutageReport, untilAborted, untilDone, within } from './worker-context.js';
import type { HeldSlot } from './slots/held-slot.js';

/** How long aborted calls have to name what is done, and the process to record it. */
const endingMs = 2_000;

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
  readonly #options: DatabaseWorkerOptions;
  readonly #context: WorkerContext;
  readonly #stopping = new AbortController();
  readonly #ended = new AbortController();
  readonly #outage: OutageReport;
  readonly #keeper: LeaseKeeper;
  readonly #loader: CursorLoader;
  readonly #retries: RetryLoop;
  readonly #notifications: CommitNotifications;
  readonly #poll: LogPoll;
  /** The subscriptions, by the permanent ids of their handlers, which the database assigns when they are registered. */
  readonly #subscriptions = new Map<string, Subscription>();
  readonly #registrar: HandlerRegistrar;
  readonly #shared: SubscriptionDependencies;
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
    const { executor, handlers, processId, knownShards, gate, abandoned } = options;
    const { store, shards } = options.database;
    const { leases, cursors, log, blocked } = store;
    this.#options = options;
    this.#outage = new OutageReport(options.context.onError, () => options.onRecovered(shards));
    const onError = (error: unknown): void => this.#outage.failed(error);
    const signals = { stopping: this.#stopping.signal, ended: this.#ended.signal };
    const context = { ...options.context, onError, ...signals };
    const { clock, settings } = context;
    this.#context = context;
    for (const handler of handlers.handlers) handlerPolicy(handler, settings);
    // The rejection is reported to callers who wait for it, and there may be none.
    this.#registered.promise.catch(() => undefined);
    const onLost = (tokens: readonly string[]): void => this.#keeper.drop(tokens);
    const onBlocked = (): void => this.#retries.wake();
    const reader = new LogReader(log, settings);
    const watch = new EventLoopMonitor(clock, settings.leaseMs);
    const saver = new CursorSaver(context, cursors, onLost);
    const writes = blockedWrites(context, blocked, onLost);
    const envelopes = new EnvelopeFactory(shards, options.models);
    const ofDatabase = { context, blocked, writes, log, reader, saver, watch, onBlocked };
    this.#shared = { ...ofDatabase, executor, envelopes, abandoned };
    const subscriptions = this.#subscriptions;
    this.#keeper = new LeaseKeeper({
      context,
      leases,
      processId,
      handlers: () => [...subscriptions.keys()],
      shards: knownShards,
      watch,
      onRenewed: (gained) => this.#renewed(gained),
      onSurplus: (slots) => void this.#guarded(() => this.#handOver(slots)),
      onLost: (slots, cause) =>
        options.onLeaseLost({ shards, cause, slotsByHandler: this.#slotsByHandler(slots) }),
    });
    this.#registrar = new HandlerRegistrar(cursors, handlers.handlers, subscriptions);
    this.#loader = new CursorLoader({
      context,
      cursors,
      blocked,
      settled: () =>
        Promise.all([saver.settled(), ...Object.values(writes).map((write) => write.answered())]),
      subscriptions,
      onBlocked,
    });
    this.#retries = new RetryLoop({ context, blocked, keeper: this.#keeper, subscriptions, gate });
    this.#notifications = new CommitNotifications({
      channel: store.notifications,
      intervalMs: settings.notifyCoalesceMs,
      clock,
      onError,
    });
    const fedLogs = this.#fedLogs;
    const foundCount = (): number =>
      [...fedLogs.values()].reduce((sum, fed) => sum + fed.reader.foundCount, reader.foundCount);
    this.#poll = new LogPoll(context, foundCount, () => {
      reader.refresh();
      // A live feed reports commits on its own.
      for (const fed of fedLogs.values()) if (!fed.feed.isLive) fed.reader.refresh();
      for (const subscription of subscriptions.values()) subscription.wake();
    });
  }

  /** Begins; if the database is down, it tries again until the database is available. */
  start(): void {
    this.#ignorePauses = onPause(this.#options.database.store, (handler, paused) =>
      this.#loader.setPaused(handler, paused),
    );
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
    const { shards } = this.#options.database;
    const onRefused = (error: unknown): void =>
      refused.resolve({ shards, error, handlers: this.#registrar.missing });
    this.#onRefused.add(onRefused);
    // If this rejects, so does the registration of the handlers, which is awaited below.
    this.#options.database.ready(onRefused).catch(() => undefined);
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
    await within(clock, timeoutMs, this.#idle());
    const reason = new Error('Delivery has stopped');
    for (const subscription of subscriptions) subscription.dispatch.end(reason);
    const restMs = timeoutMs - Math.min(endingMs, timeoutMs / 4);
    await within(clock, timeoutMs - restMs, this.#idle());
    for (const { dispatch } of subscriptions) dispatch.abandon(reason);
    await within(clock, restMs / 8, this.#idle());
    await within(clock, restMs / 8, Promise.all(subscriptions.map((each) => each.recordUndone())));
    this.#ended.abort();
    for (const { dispatch } of subscriptions) dispatch.drop(reason);
    this.#shared.saver.stop();
    this.#notifications.stop();
    this.#ignorePauses();
    const lastMs = restMs - restMs / 4;
    await within(clock, lastMs, this.#giveBackAll(lastMs, sourcesClosed));
  }

  /** Abandoned attempts are taken back first, so that the next holder of the slots does not see them counted. */
  async #giveBackAll(timeoutMs: number, sourcesClosed: Promise<unknown>): Promise<void> {
    const { clock } = this.#context;
    const { writes, saver } = this.#shared;
    await within(clock, timeoutMs / 2, this.#idle());
    await within(clock, timeoutMs / 4, writes.move.answered());
    await this.#guarded(() => saver.save(true));
    await sourcesClosed;
    // A database that was unavailable has no leases of this process to give back.
    if (this.#hasBegun) await this.#keeper.stop();
  }

  /** Resolves when nothing is being handled, and no model is being recovered. */
  async #idle(): Promise<void> {
    const subscriptions = [...this.#subscriptions.values()];
    await Promise.all([...subscriptions.map(({ dispatch }) => dispatch.idle()), this.#retries.idle()]);
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
    const { watch, saver } = this.#shared;
    const { notifications, partitions } = this.#options.database.store;
    const loops = [
      () => watch.run(this.#ended.signal),
      () => this.#keeper.run(),
      () => saver.run(),
      () => this.#retries.run(),
      () => this.#poll.run(),
      () => listenForNotifications(context, notifications, () => this.#poll.wake()),
      () => keepPartitions(context, partitions),
    ];
    await Promise.all(loops.map((loop) => this.#guarded(loop)));
  }

  /** Waits until migrations are applied: before that, every query would be refused. */
  async #becomeReady(): Promise<void> {
    await Promise.race([this.#options.database.ready(), untilAborted(this.#context.stopping)]);
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
    const joined = this.#options.handlers.handlers.flatMap((handler) => {
      const id = ids.get(handler.name);
      if (id === undefined || this.#subscriptions.has(id)) return [];
      const subscription = new Subscription({ ...handler, id }, this.#dependencies(handler, id));
      this.#subscriptions.set(id, subscription);
      return [subscription];
    });
    for (const subscription of joined) void this.#guarded(() => subscription.run());
    if (this.#hasBegun) this.#keeper.wake();
    else if (joined.length > 0 || this.#registrar.missing.length === 0) void this.#deliver();
  }

  /** Opens the source of a handler that has one. */
  #dependencies({ options: { source } }: RegisteredHandler, id: string): SubscriptionDependencies {
    if (source === undefined) return this.#shared;
    const { store, shards } = this.#options.database;
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
    return { ...this.#shared, reader };
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

  /** Hands over slots beyond the share of this process, each as soon as everything is finished there. */
  async #handOver(slots: readonly HeldSlot[]): Promise<void> {
    this.#retries.leave();
    for (const subscription of this.#subscriptions.values()) subscription.leave();
    await Promise.all(slots.map((slot) => this.#finishAndGiveBack(slot)));
  }

  /**
   * Finishes what was read from a slot, for at most the time of a lease, and then only the calls that are running, for as long again.
   * Aborts longer calls, as a stop does: the other events of their slot do not wait for them any longer. Then saves the position there,
   * so that the next holder repeats nothing that is done, and gives the slot back.
   */
  async #finishAndGiveBack(slot: HeldSlot): Promise<void> {
    const { clock, settings, stopping } = this.#context;
    const { writes, saver } = this.#shared;
    const idle = slot.idle();
    await within(clock, settings.leaseMs, idle);
    const subscription = this.#subscriptions.get(slot.handler);
    const reason = new Error(`Slot ${slot.slot} of handler ${slot.handler} is given back`);
    subscription?.dispatch.leave((each) => each === slot);
    await within(clock, settings.leaseMs, idle);
    subscription?.dispatch.end(reason, slot);
    await within(clock, Math.min(endingMs, settings.leaseMs), idle);
    subscription?.dispatch.abandon(reason, slot);
    await within(clock, Math.min(endingMs, settings.leaseMs), idle);
    await within(clock, settings.leaseMs, Promise.resolve(subscription?.recordUndone(slot)));
    await writes.move.answered();
    await untilDone(this.#context, stopping, () => saver.save(true));
    // A stop gives all slots back at once.
    if (!stopping.aborted) await this.#keeper.giveBack([slot]);
  }

  #slotsByHandler(slots: readonly HeldSlot[]): ReadonlyMap<string, readonly number[]> {
    const nameOf = ({ handler }: HeldSlot): string => this.#subscriptions.get(handler)?.names[0] ?? handler;
    const lost = [...Map.groupBy(slots, nameOf)];
    return new Map(lost.map(([name, own]) => [name, own.map(({ slot }) => slot)]));
  }

  async #guarded(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#context.onError(error);
    }
  }
}
