import {
  type HandlerKey,
  type IdempotencyKeys,
  InvalidCursorException,
  type KeyScope,
  type Page,
  ShardUnavailableException,
  type StoredKey,
} from '@framework/core';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { withinMs } from './within-ms.js';

interface KeyRow {
  readonly fingerprint: string;
  readonly actionId: string;
  readonly actionName: string;
  readonly result: string | null;
}

/** The idempotency keys in one database. */
export class PgIdempotencyKeys implements IdempotencyKeys {
  readonly #manager: PgTransactionManager;
  /** Whether an answer is missing that somebody has stopped waiting for: until it comes, nobody waits again. */
  #isOverdue = false;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async find(scope: KeyScope, waitMs?: number): Promise<StoredKey | undefined> {
    if (waitMs === undefined) return this.#find(scope);
    if (this.#isOverdue) throw this.#tooLate();
    const answer = this.#find(scope);
    return withinMs(answer, waitMs, () => {
      this.#isOverdue = true;
      const end = (): void => void (this.#isOverdue = false);
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
    const { rows } = await this.#manager.query<KeyRow>({
      name: 'framework_find_key',
      text: findStatement,
      values: [key, principal, namespace],
    });
    const [row] = rows;
    return row && { ...row, result: row.result ?? undefined };
  }

  #tooLate(): ShardUnavailableException {
    return new ShardUnavailableException(this.#manager.shard, 'it did not answer a search for a key in time');
  }
}

const findStatement = `
  select fingerprint, action_id as "actionId", action_name as "actionName", result::text as result
  from eventlog.idempotency_keys
  where key = $1 and principal = $2 and namespace = $3 and expires_date > now()`;

// Rows that are being taken over are locked, and passed over.
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

/** @throws InvalidCursorException `invalid-cursor` when it is no `next` of an earlier page */
function placeOf(after: string | undefined): readonly string[] {
  if (after === undefined) return ['-infinity', '', '', ''];
  const place: unknown = JSON.parse(after);
  if (!Array.isArray(place) || place.length !== 4) throw new InvalidCursorException(after);
  return place.map(String);
}
