import { InvalidCursorError, type Page, ShardUnavailableError } from '@framework/core';
import type { HandlerKey, IdempotencyKeys, KeyScope, StoredKey } from '@framework/core/adapter';

import { replicatedSql } from '../connection/commit-outcome.js';
import type { Connection } from '../connection/connection.js';

interface KeyRow {
  readonly fingerprint: string;
  readonly actionId: string;
  readonly actionName: string;
  readonly result: string | null;
}

/** An extra row from a server in recovery, where a missing key proves nothing. */
interface NoAnswer {
  readonly fingerprint: null;
}

/** The idempotency keys in one database. */
export class PgIdempotencyKeys implements IdempotencyKeys {
  readonly #manager: Connection;
  /**
   * How many searches are still running after their caller gave up. While there are any, further searches are refused.
   * Otherwise a busy database would collect ever more queries that nobody waits for, and its own requests would queue
   * behind them.
   */
  #overdueCount = 0;

  constructor(manager: Connection) {
    this.#manager = manager;
  }

  async find(scope: KeyScope, waitMs?: number): Promise<StoredKey | undefined> {
    if (waitMs === undefined) return this.#find(scope);
    if (this.#overdueCount > 0) throw this.#tooLate();
    const answer = this.#find(scope);
    return withinMs(answer, waitMs, () => {
      this.#overdueCount++;
      const end = (): void => void this.#overdueCount--;
      answer.then(end, end);
      return this.#tooLate();
    });
  }

  async deleteExpired(countMax: number): Promise<number> {
    const { rowCount } = await this.#manager.query({
      name: 'framework_delete_keys',
      text: deleteStatement,
      values: [countMax],
    });
    return rowCount ?? 0;
  }

  async findHandlerKeys({
    olderThanMs,
    limit,
    after,
  }: {
    readonly olderThanMs: number;
    readonly limit: number;
    readonly after?: string;
  }): Promise<Page<HandlerKey>> {
    const { rows } = await this.#manager.query<HandlerKey & { readonly place: string }>({
      name: 'framework_handler_keys',
      text: handlerKeysStatement,
      values: [olderThanMs, limit + 1, ...placeOf(after)],
    });
    const items = rows.slice(0, limit).map(({ place: _place, ...key }) => key);
    return { items, next: rows.length > limit ? rows[limit - 1]?.place : undefined };
  }

  async delete(scopes: readonly KeyScope[]): Promise<number> {
    const { rowCount } = await this.#manager.query({
      name: 'framework_delete_given_keys',
      text: deleteGivenStatement,
      values: [
        scopes.map(({ key }) => key),
        scopes.map(({ principal }) => principal),
        scopes.map(({ namespace }) => namespace),
      ],
    });
    return rowCount ?? 0;
  }

  async #find({ key, principal, namespace }: KeyScope): Promise<StoredKey | undefined> {
    const { rows } = await this.#manager.query<KeyRow | NoAnswer>({
      name: 'framework_find_key',
      text: findStatement,
      values: [key, principal, namespace],
    });
    const stored = rows.find((row) => row.fingerprint !== null);
    if (stored !== undefined) {
      const { fingerprint, actionId, actionName, result } = stored;
      return { fingerprint, actionId, actionName, result: result ?? undefined };
    }
    if (rows.length === 0) return undefined;
    const reason = 'its server is in recovery, and may not have received a recent idempotency key yet';
    throw new ShardUnavailableError(this.#manager.shard, reason);
  }

  #tooLate(): ShardUnavailableError {
    return new ShardUnavailableError(
      this.#manager.shard,
      'it did not answer the search for an idempotency key in time',
    );
  }
}

// A repeat is answered with what is found, so that must be as safe as the first answer.
const findStatement = `
  select fingerprint, action_id as "actionId", action_name as "actionName", result::text as result, ${replicatedSql} as replicated
  from eventlog.idempotency_keys
  where key = $1 and principal = $2 and namespace = $3 and expires_date > now()
  union all select null, null, null, null, null where pg_is_in_recovery()`;

// Skips rows that are locked because another transaction is taking over an expired key.
const deleteStatement = `
  delete from eventlog.idempotency_keys where ctid = any (array(
    select ctid from eventlog.idempotency_keys
    where expires_date <= now() order by expires_date limit $1 for update skip locked
  ))`;

const handlerKeysStatement = `
  select key, principal, namespace, source, json_build_array(created_date, key, principal, namespace)::text as place
  from eventlog.idempotency_keys
  where source is not null and created_date <= now() - $1::bigint * interval '1 millisecond'
    and (created_date, key, principal, namespace) > ($3::timestamptz, $4::text, $5::text, $6::text)
  order by created_date, key, principal, namespace limit $2`;

const deleteGivenStatement = `
  delete from eventlog.idempotency_keys k
  using unnest($1::text[], $2::text[], $3::text[]) as given (key, principal, namespace)
  where (k.key, k.principal, k.namespace) = (given.key, given.principal, given.namespace)`;

/** @throws InvalidCursorError `invalid-cursor` when it is not the `next` of an earlier page */
function placeOf(after: string | undefined): readonly string[] {
  if (after === undefined) return ['-infinity', '', '', ''];
  const place = jsonOf(after);
  if (!Array.isArray(place) || place.length !== 4) throw new InvalidCursorError(after);
  return place.map(String);
}

/** Parses a text as JSON; `undefined` when it is not valid. */
function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Waits for an answer for a limited time, and does not cancel the query.
 *
 * @param tooLate makes the error to throw when the time has passed
 */
function withinMs<T>(answer: Promise<T>, waitMs: number, tooLate: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(tooLate()), waitMs);
    answer.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
