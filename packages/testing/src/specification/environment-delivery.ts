import type { ActionExecutor, DatabaseRegistry, ModelClass } from '@framework/core';
import type { DeliveryOverrides, EventHandlerRegistry } from '@framework/events';

import { type MemoryDeliveryTables, type MemoryTables, joinedManager } from '../memory/index.js';
import type { VirtualClock } from '../virtual-clock.js';
import { type DeliveryReport, DeliveryRun, deadLetterError } from './delivery-run.js';

const defaultCallsMax = 1_000;

/** What a delivery allows its handlers. */
export interface DeliverAllOptions {
  /** The maximum number of calls of handlers. Default 1,000. */
  readonly callsMax?: number;
  /**
   * Whether handlers may give up on events. Default `'refused'`: the delivery rejects with `dead-letter`, and with the handler's error
   * as the cause.
   */
  readonly deadLetters?: 'refused' | 'kept';
}

/** What is delivered, and to which handlers. */
export interface EnvironmentDeliveryOptions {
  readonly databases: DatabaseRegistry;
  readonly executor: ActionExecutor;
  readonly handlers: EventHandlerRegistry;
  readonly models: readonly ModelClass<unknown>[];
  readonly clock: VirtualClock;
  /** Overrides of the settings of delivery. */
  readonly settings: DeliveryOverrides;
}

/** The deliveries of an environment: each is a separate process, which ends when nothing is left to do. */
export class EnvironmentDelivery {
  readonly #options: EnvironmentDeliveryOptions;

  constructor(options: EnvironmentDeliveryOptions) {
    this.#options = options;
  }

  /** The delivery tables of each database. */
  get tables(): readonly MemoryDeliveryTables[] {
    return this.#options.databases.eachDatabase().map((managers) => joinedManager(managers).tables.delivery);
  }

  /** Delivers until nothing is pending or due; see {@link TestEnvironment.deliverAll}. */
  async all({
    callsMax = defaultCallsMax,
    deadLetters = 'refused',
  }: DeliverAllOptions = {}): Promise<DeliveryReport> {
    const known = this.#deadKeys;
    const report = await this.#run(callsMax);
    const given = report.deadLetters.find(({ handler, event }) => !known.has(`${handler} ${event.id}`));
    if (deadLetters === 'refused' && given !== undefined) throw deadLetterError(given, report);
    return report;
  }

  /** Delivers everything that is committed so far: the last event of the database the given number of times, all others once. */
  async committed({ delivery }: MemoryTables, times: number): Promise<DeliveryReport> {
    const ends = new Map(this.tables.map((tables) => [tables, tables.log.length]));
    const last = delivery.log.length - 1;
    let report = await this.#run(defaultCallsMax, ends);
    for (let time = 1; time < times; time++) {
      delivery.moveCursors(last);
      const next = await this.#run(defaultCallsMax, ends);
      report = { ...next, attempts: [...report.attempts, ...next.attempts] };
    }
    return report;
  }

  /** The handlers and events of the dead letters. */
  get #deadKeys(): ReadonlySet<string> {
    const rows = this.tables.flatMap(({ blocked }) => [...blocked.values()]);
    return new Set(rows.filter(({ dead }) => dead).map(({ handler, event }) => `${handler} ${event?.id}`));
  }

  /**
   * Runs one delivery until nothing is left to do.
   *
   * @param ends the position up to which each log is delivered; the whole log if it is missing
   */
  async #run(callsMax: number, ends?: ReadonlyMap<MemoryDeliveryTables, number>): Promise<DeliveryReport> {
    const { databases, ...options } = this.#options;
    if (options.handlers.handlers.length === 0) return { attempts: [], deadLetters: [] };
    const delivered = databases.eachDatabase().map((managers) => {
      const tables = joinedManager(managers).tables.delivery;
      return { tables, shards: managers.map(({ shard }) => shard), end: ends?.get(tables) ?? Infinity };
    });
    return new DeliveryRun({ ...options, databases: delivered, callsMax }).toRest();
  }
}
