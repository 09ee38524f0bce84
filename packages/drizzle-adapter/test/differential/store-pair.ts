import assert from 'node:assert/strict';
import { type DatabaseRegistry, FrameworkError, openDatabases } from '@framework/core';
import type { DeliveryStore, ModelMapper, TransactionManager } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { Account, firstShard } from '@framework/conformance';
import {
  MemoryRepository,
  MemoryServer,
  type MemorySnapshot,
  type MemoryTables,
  memory,
  memorySharding,
} from '@framework/testing/memory';
import { onTestFinished } from 'vitest';
import { emptyDatabase } from '../fixtures/empty-database.js';
import { frameworkTables } from '../fixtures/copy-database.js';
import { openRegistry } from '../fixtures/open-registry.js';
import { PgAccountRepository } from '../fixtures/pg-account-repository.js';
import { VirtualTime } from '../fixtures/virtual-time.js';

/** What a backup contains; the tables that others reference come first. */
const tables = [...frameworkTables.map((table) => `eventlog.${table}`), 'public.accounts'];

const createBackup = `
  create schema backup;
  ${tables.map((table) => `create unlogged table backup.${nameOf(table)} as table ${table}`).join(';')};
  create unlogged table backup.position as select last_value from eventlog.events_position_seq`;

const backUp = `
  begin;
  ${tables.map((table) => `delete from backup.${nameOf(table)}; insert into backup.${nameOf(table)} table ${table}`).join(';')};
  update backup.position set last_value = (select last_value from eventlog.events_position_seq);
  commit`;

/** As a dump is restored in place. The sessions that were open before end, as those of a server that restarts. */
const restore = `
  begin;
  truncate ${tables.join(', ')} cascade;
  ${tables.map((table) => `insert into ${table} table backup.${nameOf(table)}`).join(';')};
  select setval('eventlog.events_position_seq', last_value) from backup.position;
  commit;
  select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`;

/** Empties the tables of a database. */
const clear = `truncate public.accounts, eventlog.events, eventlog.idempotency_keys, eventlog.handlers, eventlog.processes cascade`;

/** One of the two stores, with all its ports. */
export interface Store extends Pick<
  DeliveryStore,
  'leases' | 'cursors' | 'log' | 'blocked' | 'deadLetters' | 'slotCount'
> {
  readonly name: 'memory' | 'postgres';
  readonly manager: TransactionManager;
  readonly accounts: ModelMapper<Account> & { findAll(): Promise<readonly Account[]> };
}

/** The values of the two stores for the same thing, such as the same position in the log or the same lease. */
export interface Both<T> {
  readonly memory: T;
  readonly postgres: T;
}

/** A store in memory and one on PostgreSQL that get the same calls at the same instants, and must give the same answers. */
export class StorePair {
  readonly #memory: Store;
  readonly #postgres: Store;
  readonly #memoryTables: MemoryTables;
  readonly #clock: VirtualClock;
  readonly #time: VirtualTime;
  #backup: MemorySnapshot | undefined;
  /** The answers that were given: texts, codes of refusals, whether something was found. */
  readonly met = new Set<string>();

  private constructor(
    memoryStore: Store,
    memoryTables: MemoryTables,
    onPostgres: Store,
    time: [VirtualClock, VirtualTime],
  ) {
    this.#memory = memoryStore;
    this.#memoryTables = memoryTables;
    this.#postgres = onPostgres;
    [this.#clock, this.#time] = time;
  }

  /** Opens the database and returns a function that creates pairs on it, one after the other, each of which begins empty. */
  static async opener(): Promise<() => Promise<StorePair>> {
    // The ids of events contain the time of the computer's clock, which is later than that of the adoption of the shards.
    const start = new Date(Date.now() - 10 * 86_400_000);
    const database = await emptyDatabase();
    const time = await VirtualTime.begin(database, start);
    onTestFinished(() => time.end());
    const registry = openRegistry([
      { group: firstShard.group, member: firstShard.member, url: database.url },
    ]);
    await registry.ready();
    await time.query(createBackup);
    const onPostgres = storeOf('postgres', registry, new PgAccountRepository(registry));
    return async () => {
      await time.query(clear);
      await time.set(start);
      const clock = new VirtualClock(start);
      const sharding = memorySharding(firstShard);
      const server = new MemoryServer(sharding, { clock });
      const databases = openDatabases(sharding, memory({ server }));
      const accounts = new MemoryRepository({ model: Account, databases });
      const inMemory = storeOf('memory', databases, accounts);
      return new StorePair(inMemory, server.tables(firstShard), onPostgres, [clock, time]);
    };
  }

  get now(): Date {
    return this.#clock.now();
  }

  get slotCount(): number {
    return this.#memory.slotCount;
  }

  get timeline(): Both<number> {
    return { memory: this.#memory.manager.timeline, postgres: this.#postgres.manager.timeline };
  }

  /** Lets time pass for both stores. */
  async pass(durationMs: number): Promise<void> {
    await this.#clock.advance(durationMs);
    await this.#time.set(this.now);
  }

  /** Keeps what both stores contain. */
  async backUp(): Promise<void> {
    this.#backup = this.#memoryTables.snapshot();
    await this.#time.query(backUp);
  }

  /** Puts back what was kept last. */
  async restore(): Promise<void> {
    if (this.#backup === undefined) throw new Error('There is no backup yet');
    this.#memoryTables.failOver(this.#backup);
    await this.#time.query(restore);
  }

  /**
   * Asks both stores, and fails the test unless they give the same answer or refuse with the same code.
   *
   * @param said the part of an answer that must be the same. Default: all of it
   * @returns the answers; `undefined` when both refused
   */
  async ask<T>(
    question: (store: Store) => Promise<T>,
    said: (answer: T, store: Store) => unknown = (answer) => answer,
  ): Promise<Both<T> | undefined> {
    const [inMemory, onPostgres] = await Promise.all([
      answerOf(question(this.#memory)),
      answerOf(question(this.#postgres)),
    ]);
    assert.deepEqual(saidOf(onPostgres, said, this.#postgres), saidOf(inMemory, said, this.#memory));
    this.met.add(kindOf(inMemory));
    if (inMemory.refused || onPostgres.refused) return undefined;
    return { memory: inMemory.value, postgres: onPostgres.value };
  }
}

type Answer<T> =
  { readonly refused: false; readonly value: T } | { readonly refused: true; readonly code: string };

async function answerOf<T>(asked: Promise<T>): Promise<Answer<T>> {
  try {
    return { refused: false, value: await asked };
  } catch (error) {
    const code = FrameworkError.find(error)?.code;
    if (code === undefined) throw error;
    return { refused: true, code };
  }
}

/** The kind of answer, for the cases that must occur. */
function kindOf(answer: Answer<unknown>): string {
  if (answer.refused) return answer.code;
  const { value } = answer;
  if (Array.isArray(value)) return value.length > 0 ? 'some' : 'none';
  if (typeof value === 'string' || typeof value === 'boolean') return `${value}`;
  return value === undefined ? 'nothing' : 'something';
}

function saidOf<T>(answer: Answer<T>, said: (value: T, store: Store) => unknown, store: Store): unknown {
  return answer.refused ? { refused: answer.code } : said(answer.value, store);
}

function storeOf(name: Store['name'], registry: DatabaseRegistry, accounts: Store['accounts']): Store {
  const [delivery] = registry.deliveries();
  if (delivery === undefined) throw new Error('The registry has no database that delivers events');
  const { leases, cursors, log, blocked, deadLetters, slotCount } = delivery.store;
  const ports = { leases, cursors, log, blocked, deadLetters, slotCount };
  return { name, manager: registry.transactionManager(firstShard), accounts, ...ports };
}

function nameOf(table: string): string {
  return table.slice(table.indexOf('.') + 1);
}
