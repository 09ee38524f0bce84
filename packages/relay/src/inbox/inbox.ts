import { ConfigurationError, InvariantViolationError } from '@framework/core';
import { type OptionNames, isStorableText, refuseUnknownOptions } from '@framework/core/adapter';

import { type InboxSql, type InboxTable, removedMax, tableOf } from './inbox-sql.js';

/**
 * Runs one statement in the consumer's transaction, with the client that the consumer uses.
 *
 * @param text has each parameter once, in order: `$1`, `$2` in PostgreSQL, `?` in the others
 * @param values the values of the parameters
 * @returns how many rows the statement has inserted or deleted
 */
export type InboxQuery = (text: string, values: readonly string[]) => RowCount | Promise<RowCount>;

/** How many rows a statement has changed; clients leave it out for statements that change none. */
export type RowCount = number | bigint | null | undefined;

/** Whose events an inbox remembers, and where. */
export interface InboxOptions extends InboxTable {
  /** Durable, and unique among the consumers that share the table: 1 to 255 bytes. */
  readonly consumer: string;
}

const optionNames: OptionNames<InboxOptions> = { consumer: true, table: true, dialect: true };
const bytesMax = 255;

/**
 * Remembers which events a consumer has accepted, in the database and transaction of the consumer's own writes: so each event has
 * its effect exactly once, however often it is delivered.
 *
 * An event is a repeat if its id was accepted before, in whatever order events arrive. If two transactions accept the same id at the
 * same time, the second one waits for the first: after a commit it has a repeat, after a rollback it accepts the event itself.
 *
 * @example packages/relay/test/consume.ci.test.ts
 *
 * ```ts
 * await pgTransaction(this.#pool, async (tx) => {
 *   if (!(await this.#inbox.accept(queryOfPg(tx), id))) return;
 *   if (event instanceof CounterIncreasedEvent) await this.#add(tx, event);
 * });
 * ```
 */
export class Inbox {
  readonly #consumer: string;
  readonly #table: string;
  readonly #sql: InboxSql;

  /** @throws ConfigurationError `invalid-configuration` when an option is unknown or cannot be used */
  constructor(options: InboxOptions) {
    refuseUnknownOptions('inbox.', optionNames, options);
    if (!isKey(options.consumer)) {
      const message = `must be a text of 1 to ${bytesMax} bytes`;
      throw new ConfigurationError([{ path: 'inbox.consumer', message }]);
    }
    const { table, sql } = tableOf(options);
    this.#consumer = options.consumer;
    this.#table = table;
    this.#sql = sql;
  }

  /**
   * Creates the table unless it exists, also when several processes do so at the same time. A service with its own migrations puts
   * the statements of `inboxTable` there instead.
   */
  async createTable(query: InboxQuery): Promise<void> {
    for (const statement of this.#sql.createTable(this.#table)) await query(statement, []);
  }

  /**
   * Accepts an event: the first statement of the transaction in which the consumer writes what the event causes. If that
   * transaction is rolled back, the event is not accepted, and its next delivery is the first one.
   *
   * Where the isolation level is stricter than read committed, PostgreSQL may refuse the second of two transactions with the same id
   * (SQLSTATE 40001): repeat that transaction.
   *
   * @param query runs statements in that transaction; outside of it, the event would be lost if the transaction failed
   * @returns `false` for a repeat, whose effect is committed already: write nothing, and acknowledge the message
   * @throws InvariantViolationError `invariant-violation` when the id is no text of 1 to 255 bytes, or `query` returns no count
   */
  async accept(query: InboxQuery, eventId: string): Promise<boolean> {
    if (!isKey(eventId)) {
      const given = String(eventId).slice(0, 64);
      throw new InvariantViolationError(
        `An event id must be a text of 1 to ${bytesMax} bytes, not '${given}': pass the id of the received event`,
      );
    }
    return countOf(await query(this.#sql.accept(this.#table), [this.#consumer, eventId])) === 1;
  }

  /**
   * Forgets the events that this consumer accepted before a date. If one of them is delivered again after that, it is no longer
   * recognised: keep them for longer than the broker keeps its messages.
   *
   * Removes at most 10,000 rows by one statement, and repeats it until none are left: outside of a transaction no lock is held for
   * long.
   *
   * @returns how many were removed
   */
  async removeOlderThan(query: InboxQuery, date: Date): Promise<number> {
    const { remove, time } = this.#sql;
    for (let removed = 0; ;) {
      const count = countOf(await query(remove(this.#table), [this.#consumer, time(date)]));
      removed += count;
      if (count < removedMax) return removed;
    }
  }
}

/** A count that is missing must not pass for a repeat, because then the event would be lost. */
function countOf(returned: RowCount): number {
  if (typeof returned === 'number' || typeof returned === 'bigint') return Number(returned);
  throw new InvariantViolationError(
    `The query function of the inbox returned ${String(returned)}: return how many rows the statement has changed, ` +
      'such as rowCount of pg or count of postgres.js',
  );
}

function isKey(value: unknown): value is string {
  return isStorableText(value) && value !== '' && Buffer.byteLength(value) <= bytesMax;
}
