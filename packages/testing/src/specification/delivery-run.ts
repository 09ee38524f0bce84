import type { ActionExecutor, Clock, ModelClass, ShardIdentifier } from '@framework/core';
import type { BlockedRow, DatabaseDelivery } from '@framework/core/adapter';
import {
  type AnyEventHandler,
  Delivery,
  type DeliveryOverrides,
  type EventEnvelope,
  type EventHandlerRegistry,
  type HandlerContext,
} from '@framework/events';
import { tuned } from '@framework/events/internal';

import { MemoryAccess, MemoryDeliveryStore, type MemoryDeliveryTables } from '../memory/index.js';
import { type HandlerCall, handlersAround } from '../record/delivery-record.js';
import type { VirtualClock } from '../virtual-clock.js';
import { SpecificationError } from './expectation.js';

/**
 * For how many turns of the event loop, which take more than 1 s, a handler may wait for something other than the virtual clock
 * before time passes all the same.
 */
const patienceTurns = 2_000;
const roundsMax = 100_000;
const deadLettersMax = 1_000;

const dayMs = 86_400_000;

/**
 * Cursors are saved at once, so that progress is visible. Nothing is polled, because only this process commits: time jumps to
 * what is due. Leases never end meanwhile.
 */
const restfulSettings = {
  cursorSaveMs: 1,
  cursorRestSaveMs: 1,
  pollMinMs: dayMs,
  pollMaxMs: dayMs,
  blockedPollMs: dayMs,
  leaseMs: 20 * dayMs,
};

/** One database whose events are delivered. */
export interface DeliveredDatabase {
  readonly tables: MemoryDeliveryTables;
  readonly shards: readonly ShardIdentifier[];
  /** How many of the first events of its log are delivered; `Infinity` for all, including those that handlers commit. */
  readonly end: number;
}

/** What a delivery needs in an environment. */
export interface DeliveryRunOptions {
  readonly databases: readonly DeliveredDatabase[];
  readonly executor: Pick<ActionExecutor, 'execute' | 'onCommit'>;
  readonly handlers: EventHandlerRegistry;
  readonly models: readonly ModelClass<unknown>[];
  readonly clock: VirtualClock;
  /** Overrides of the settings of delivery. */
  readonly settings: DeliveryOverrides;
  /** The number of calls after which the run fails with `never-idle`. */
  readonly callsMax: number;
}

/** What handlers did until nothing was pending or due. */
export interface DeliveryReport {
  /** Every attempt, in the order in which they ended. */
  readonly attempts: readonly HandlerAttempt[];
  /** The events that handlers have given up on so far, oldest first. */
  readonly deadLetters: readonly BlockedRow[];
}

/** One process that delivers with the real delivery of `@framework/events`, from its start until nothing is left to do. */
export class DeliveryRun {
  readonly #databases: readonly (DeliveredDatabase & DatabaseDelivery)[];
  readonly #handlers: readonly string[];
  readonly #delivery: Delivery;
  readonly #watch: HandlerWatch;
  readonly #clock: VirtualClock;
  readonly #engineClock: EngineClock;
  readonly #errors: unknown[] = [];
  /** The progress of the handlers when the run last stopped waiting for them. */
  #impatientAt = -1;

  constructor({ databases, handlers, clock, settings, callsMax, ...rest }: DeliveryRunOptions) {
    this.#databases = databases.map((database) => {
      const store = new MemoryDeliveryStore(new MemoryAccess(database.tables), database.end);
      return { ...database, store, ready: async () => undefined };
    });
    this.#handlers = handlers.handlers.map(({ name }) => name);
    this.#watch = new HandlerWatch(handlers, callsMax);
    this.#clock = clock;
    this.#engineClock = new EngineClock(clock);
    this.#delivery = new Delivery({
      ...rest,
      databases: { deliveries: () => this.#databases },
      handlers: this.#watch.handlers,
      settings: tuned({ ...restfulSettings, ...settings }),
      clock: this.#engineClock,
      random: () => 1,
      onError: (error) => this.#errors.push(error),
      // The watch records failed attempts.
      onAttemptFailed: () => undefined,
      onLeaseLost: () => undefined,
    });
  }

  /**
   * Delivers until nothing is pending or due.
   *
   * @throws SpecificationError `never-idle` when the handlers never stop
   */
  async toRest(): Promise<DeliveryReport> {
    this.#delivery.start();
    try {
      await this.#passTime();
    } finally {
      await driven(this.#delivery.stop({ timeoutMs: 1 }), this.#clock);
    }
    this.#assertOnlyHandlersFailed();
    return { attempts: this.#watch.attempts, deadLetters: await this.#deadLetters() };
  }

  async #passTime(): Promise<void> {
    for (let round = 0; round < roundsMax; round++) {
      await this.#quiet();
      this.#watch.assertRestful();
      if (this.#databases.every(({ tables, end }) => isAtRest(tables, this.#handlers, end))) return;
      await this.#clock.wakeNext();
    }
    throw new SpecificationError(
      'never-idle',
      'Delivery waits for something that never happens: look for a handler that waits without a timeout',
    );
  }

  /** Resolves when everything that runs is waiting for the clock, so that only time makes it continue. */
  async #quiet(): Promise<void> {
    await turn();
    let progress = this.#progress;
    for (let count = 0; this.#isBusy(); count++) {
      await turn(count);
      if (this.#progress !== progress) count = 0;
      if (count === patienceTurns) this.#impatientAt = progress;
      progress = this.#progress;
    }
  }

  #isBusy(): boolean {
    return (
      this.#watch.runningCount > this.#engineClock.otherSleeperCount && this.#progress !== this.#impatientAt
    );
  }

  get #progress(): number {
    return this.#watch.callCount + this.#watch.attempts.length;
  }

  /** Throws the first reported error that no handler threw: it is delivery's own, or comes from the registration of handlers. */
  #assertOnlyHandlersFailed(): void {
    const thrown = new Set(this.#watch.attempts.map(({ error }) => error));
    const unexpected = this.#errors.find((error) => !thrown.has(error));
    if (unexpected !== undefined) throw unexpected;
  }

  async #deadLetters(): Promise<readonly BlockedRow[]> {
    const pages = await Promise.all(
      this.#databases.map(({ store }) => store.deadLetters.find({ dead: true }, { limit: deadLettersMax })),
    );
    return pages.flatMap(({ items }) => items);
  }
}

const eagerTurns = 1_000;

/** Waits for work that may be waiting for a virtual clock: lets time pass whenever nothing else is left to do. */
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

/**
 * One turn of the event loop, after which everything that was ready has run. After many turns, it leaves the processor to others.
 */
function turn(count = 0): Promise<void> {
  return new Promise((resolve) => {
    if (count < eagerTurns) setImmediate(resolve);
    else setTimeout(resolve, 1);
  });
}

/**
 * Whether handlers have nothing left to do: everything is handled, or waits behind a dead letter.
 *
 * @param end how many of the first events of the log count
 */
export function isAtRest(tables: MemoryDeliveryTables, handlers: readonly string[], end: number): boolean {
  const place = Math.min(end, tables.log.length);
  return handlers.every((name) => {
    const handler = tables.names.get(name) ?? name;
    const isPaused = tables.handlers.get(handler);
    if (isPaused === undefined) return false;
    return isPaused || (hasPassed(tables, handler, place) && !isRetrying(tables, handler));
  });
}

function hasPassed(tables: MemoryDeliveryTables, handler: string, place: number): boolean {
  return Array.from(
    { length: tables.slotCount },
    (_unused, slot) => tables.cursor(handler, slot) >= place,
  ).every(Boolean);
}

function isRetrying(tables: MemoryDeliveryTables, handler: string): boolean {
  return tables.blockedOf(handler).some(({ dead }) => !dead);
}

/** The last error of a handler for an event that it gave up on. */
export function lastErrorAt({ handler, event }: BlockedRow, { attempts }: DeliveryReport): unknown {
  return attempts.findLast((attempt) => attempt.handler === handler && attempt.eventId === event.id)?.error;
}

/** The error that says which event was given up on, with the handler's last error as the cause. */
export function deadLetterError(row: BlockedRow, report: DeliveryReport): SpecificationError {
  const { handler, event, attempts, error } = row;
  return new SpecificationError(
    'dead-letter',
    `${handler} gave up on ${event.type} of ${event.modelName} ${event.modelId} after ${attempts} attempts: ${error}`,
    { cause: lastErrorAt(row, report) },
  );
}

/** A virtual clock for delivery, which distinguishes delivery's own waits from those of handlers and actions. */
class EngineClock implements Clock {
  readonly #clock: VirtualClock;
  #sleeperCount = 0;

  constructor(clock: VirtualClock) {
    this.#clock = clock;
  }

  /** How many others are asleep: handlers, and the actions that they execute. */
  get otherSleeperCount(): number {
    return this.#clock.sleeperCount - this.#sleeperCount;
  }

  now(): Date {
    return this.#clock.now();
  }

  elapsedMs(): number {
    return this.#clock.elapsedMs();
  }

  after(durationMs: number, work: () => void): () => void {
    return this.#clock.after(durationMs, work);
  }

  async sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
    this.#sleeperCount++;
    await this.#clock.sleep(durationMs, signal);
    this.#sleeperCount--;
  }
}

/** One attempt of a handler at an event. */
export interface HandlerAttempt {
  readonly handler: string;
  readonly eventId: string;
  readonly eventType: string;
  /** What it threw; `undefined` when it returned. */
  readonly error: unknown;
}

/** Stands between delivery and the handlers: records every attempt, and ends a run that would never end. */
class HandlerWatch {
  /** All attempts, in the order in which they ended. */
  readonly attempts: HandlerAttempt[] = [];
  /** The handlers wrapped by the watch, for a delivery. */
  readonly handlers: readonly AnyEventHandler[];
  readonly #callsMax: number;
  readonly #callCounts = new Map<string, number>();
  readonly #running = new Set<HandlerContext>();

  /** @param callsMax the number of calls after which the run fails with `never-idle` */
  constructor(handlers: EventHandlerRegistry, callsMax: number) {
    this.#callsMax = callsMax;
    this.handlers = handlersAround(handlers, (call) => this.#call(call));
  }

  /** How many calls were made. */
  get callCount(): number {
    return [...this.#callCounts.values()].reduce((sum, count) => sum + count, 0);
  }

  /** How many calls are running, without those that were abandoned. */
  get runningCount(): number {
    return [...this.#running].filter(({ signal }) => !signal.aborted).length;
  }

  /**
   * Checks the number of calls.
   *
   * @throws SpecificationError `never-idle` when there were more calls than allowed
   */
  assertRestful(): void {
    if (this.callCount <= this.#callsMax) return;
    const counts = [...this.#callCounts]
      .sort(([, one], [, other]) => other - one)
      .map(([name, count]) => `${name} (${count})`);
    throw new SpecificationError(
      'never-idle',
      `Delivery does not come to rest: more than ${this.#callsMax} calls of handlers, by ${counts.join(', ')}. ` +
        'Look for events that lead to each other, or raise callsMax',
    );
  }

  async #call({ handler: { name }, envelopes, context, work }: HandlerCall): Promise<void> {
    this.#callCounts.set(name, (this.#callCounts.get(name) ?? 0) + 1);
    // If this throws, the call fails and its event is blocked, so the delivery ends.
    this.assertRestful();
    this.#running.add(context);
    try {
      await work();
      this.#ended(name, envelopes, undefined);
    } catch (error) {
      this.#ended(name, envelopes, error);
      throw error;
    } finally {
      this.#running.delete(context);
    }
  }

  #ended(handler: string, envelopes: readonly EventEnvelope<never>[], error: unknown): void {
    for (const { eventId, eventType } of envelopes)
      this.attempts.push({ handler, eventId, eventType, error });
  }
}
