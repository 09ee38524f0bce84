import type {
  ActionExecutor,
  DatabaseDelivery,
  ModelClass,
  ParkedRow,
  ShardIdentifier,
} from '@framework/core';
import { Delivery, type DeliveryOverrides, type EventHandlerRegistry } from '@framework/events';
import { MemoryAccess, MemoryDeliveryStore, type MemoryDeliveryTables } from '../../memory/index.js';
import type { VirtualClock } from '../../virtual-clock.js';
import { SpecificationError } from '../specification-error.js';
import { isAtRest } from './at-rest.js';
import { driven, turn } from './driven.js';
import { EngineClock } from './engine-clock.js';
import { type HandlerAttempt, HandlerWatch } from './handler-watch.js';

/** How long a handler may wait for something else than the virtual clock before time passes all the same: over 1 s. */
const patienceTurns = 2_000;
const roundsMax = 100_000;
const deadLettersMax = 1_000;

const dayMs = 86_400_000;

/**
 * Cursors are saved at once, so that what is done shows. Nothing is looked for now and then, because only this process
 * commits: time leaps to what is due. Nobody loses a lease meanwhile.
 */
const restfulSettings: DeliveryOverrides = {
  cursorSaveMs: 1,
  cursorRestSaveMs: 1,
  pollMinMs: dayMs,
  pollMaxMs: dayMs,
  parkedPollMs: dayMs,
  leaseMs: 20 * dayMs,
};

/** One database whose events are delivered. */
export interface DeliveredDatabase {
  readonly tables: MemoryDeliveryTables;
  readonly shards: readonly ShardIdentifier[];
  /** How many events of its log, the first ones; `Infinity` for all, also those that handlers commit. */
  readonly end: number;
}

/** What a delivery needs in a world. */
export interface DeliveryRunOptions {
  readonly databases: readonly DeliveredDatabase[];
  readonly executor: Pick<ActionExecutor, 'execute' | 'onCommit'>;
  readonly handlers: EventHandlerRegistry;
  readonly models: readonly ModelClass<unknown>[];
  readonly clock: VirtualClock;
  /** What to change in the settings of delivery. */
  readonly settings: DeliveryOverrides;
  /** After how many calls of handlers they count as restless. */
  readonly callsMax: number;
}

/** What handlers did until nothing was pending or due. */
export interface DeliveryReport {
  /** Every attempt, in the order in which they ended. */
  readonly attempts: readonly HandlerAttempt[];
  /** What handlers gave up, the oldest first; also what they had given up before. */
  readonly deadLetters: readonly ParkedRow[];
}

/** One process that delivers, by the engine of `@framework/events`, from its start until nothing is left to do. */
export class DeliveryRun {
  readonly #databases: readonly (DeliveredDatabase & DatabaseDelivery)[];
  readonly #handlers: readonly string[];
  readonly #delivery: Delivery;
  readonly #watch: HandlerWatch;
  readonly #clock: VirtualClock;
  readonly #engineClock: EngineClock;
  readonly #errors: unknown[] = [];
  /** How far the handlers were when the patience with them was used up. */
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
      settings: { ...restfulSettings, ...settings },
      clock: this.#engineClock,
      random: () => 1,
      onError: (error) => this.#errors.push(error),
      // The watch records them.
      onAttemptFailed: () => undefined,
    });
  }

  /**
   * Delivers until nothing is pending or due.
   *
   * @throws SpecificationError `restless` when the handlers go on and on
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
    throw new SpecificationError('restless', 'Delivery waits for something that never happens');
  }

  /** Resolves when everything that runs waits for the clock, and nothing but time brings it further. */
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

  /** What the engine reports besides is a fault of its own, or of the handlers' registration. */
  #assertOnlyHandlersFailed(): void {
    const thrown = new Set(this.#watch.attempts.map(({ error }) => error));
    const unexpected = this.#errors.find((error) => !thrown.has(error));
    if (unexpected !== undefined) throw unexpected;
  }

  async #deadLetters(): Promise<readonly ParkedRow[]> {
    const pages = await Promise.all(
      this.#databases.map(({ store }) => store.deadLetters.find({ dead: true }, { limit: deadLettersMax })),
    );
    return pages.flatMap(({ items }) => items);
  }
}
