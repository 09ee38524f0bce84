import type { Page } from '@framework/core';
import type { ChangeSet, HandlerKey, IdempotencyKeys, KeyScope, StoredKey } from '@framework/core/adapter';
import type { DatabaseSync } from 'node:sqlite';

/** Reads and writes one database. */
interface Access {
  read<T>(work: (connection: DatabaseSync) => T): Promise<T>;
  write<T>(work: (connection: DatabaseSync) => T): Promise<T>;
}

/** The idempotency keys in one SQLite database. */
export class SqliteIdempotencyKeys implements IdempotencyKeys {
  readonly #access: Access;

  constructor(access: Access) {
    this.#access = access;
  }

  find({ namespace, principal, key }: KeyScope): Promise<StoredKey | undefined> {
    return this.#access.read((connection) => {
      const row = connection
        .prepare(
          `select fingerprint, action_id, action_name, result from idempotency_keys
           where namespace = ? and principal = ? and key = ? and expires_ms > ?`,
        )
        .get(namespace, principal, key, Date.now());
      return (
        row && {
          fingerprint: String(row['fingerprint']),
          actionId: String(row['action_id']),
          actionName: String(row['action_name']),
          result: row['result'] === null ? undefined : String(row['result']),
        }
      );
    });
  }

  deleteExpired(countMax: number): Promise<number> {
    return this.#access.write((connection) => {
      const { changes } = connection
        .prepare(
          `delete from idempotency_keys where serial in (
             select serial from idempotency_keys where expires_ms <= ? order by expires_ms limit ?)`,
        )
        .run(Date.now(), countMax);
      return Number(changes);
    });
  }

  findHandlerKeys({
    olderThanMs,
    limit,
    after = '0',
  }: {
    readonly olderThanMs: number;
    readonly limit: number;
    readonly after?: string;
  }): Promise<Page<HandlerKey>> {
    return this.#access.read((connection) => {
      // The position is a number that only grows, so a deletion does not shift later pages.
      const rows = connection
        .prepare(
          `select serial, namespace, principal, key, source from idempotency_keys
           where source is not null and created_ms <= ? and serial > ? order by serial limit ?`,
        )
        .all(Date.now() - olderThanMs, Number(after), limit + 1);
      const items = rows.slice(0, limit);
      return {
        items: items.map(({ namespace, principal, key, source }) => ({
          namespace: String(namespace),
          principal: String(principal),
          key: String(key),
          source: String(source),
        })),
        next: rows.length > limit ? String(items.at(-1)?.['serial']) : undefined,
      };
    });
  }

  delete(scopes: readonly KeyScope[]): Promise<number> {
    return this.#access.write((connection) => {
      const one = connection.prepare(
        'delete from idempotency_keys where namespace = ? and principal = ? and key = ?',
      );
      return scopes.filter(
        ({ namespace, principal, key }) => one.run(namespace, principal, key).changes === 1,
      ).length;
    });
  }
}

/** Whether a change set has a key that already exists and has not expired. */
export function isKeyTaken(connection: DatabaseSync, { key }: ChangeSet): boolean {
  if (key === undefined) return false;
  const found = connection.prepare(
    'select 1 from idempotency_keys where namespace = ? and principal = ? and key = ? and expires_ms > ?',
  );
  return found.get(key.namespace, key.principal, key.key, Date.now()) !== undefined;
}

/** Stores the key of a change set, if it has one, and replaces an expired one. */
export function storeKey(connection: DatabaseSync, { key, action }: ChangeSet): void {
  if (key === undefined) return;
  const { namespace, principal, key: text, fingerprint, result = null, source = null, lifetimeMs } = key;
  const nowMs = Date.now();
  const insert = connection.prepare(
    `insert or replace into idempotency_keys
       (namespace, principal, key, fingerprint, action_id, action_name, result, source, created_ms, expires_ms)
     values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  );
  const request = [namespace, principal, text, fingerprint, action.id, action.name, result, source];
  insert.run(...request, nowMs, nowMs + lifetimeMs);
}
