import type { Page } from '@framework/core';
import type { ChangeSet, HandlerKey, IdempotencyKeys, KeyScope, StoredKey } from '@framework/core/adapter';

import type { MemoryTables, MemoryReads } from './memory-tables.js';

/** The idempotency keys in one database in memory. */
export class MemoryIdempotencyKeys implements IdempotencyKeys {
  readonly #manager: MemoryReads;

  constructor(manager: MemoryReads) {
    this.#manager = manager;
  }

  find(scope: KeyScope, waitMs?: number): Promise<StoredKey | undefined> {
    return this.#manager.read(() => this.#find(scope), 'find-key', waitMs);
  }

  #find(scope: KeyScope): StoredKey | undefined {
    const { keys, clock } = this.#manager.tables;
    const stored = keys.get(textOf(scope));
    if (stored === undefined || stored.expiresMs <= clock.now().getTime()) return undefined;
    const { fingerprint, actionId, actionName, result } = stored;
    return { fingerprint, actionId, actionName, result };
  }

  deleteExpired(countMax: number): Promise<number> {
    return this.#manager.read(() => {
      const { keys, clock } = this.#manager.tables;
      const nowMs = clock.now().getTime();
      const expired = [...keys]
        .filter(([, { expiresMs }]) => expiresMs <= nowMs)
        .sort(([, one], [, other]) => one.expiresMs - other.expiresMs)
        .slice(0, countMax);
      for (const [text] of expired) keys.delete(text);
      return expired.length;
    }, 'delete-expired-keys');
  }

  findHandlerKeys({
    olderThanMs,
    limit,
    after = '-1',
  }: {
    readonly olderThanMs: number;
    readonly limit: number;
    readonly after?: string;
  }): Promise<Page<HandlerKey>> {
    return this.#manager.read(() => {
      const { keys, clock } = this.#manager.tables;
      const lastMs = clock.now().getTime() - olderThanMs;
      // The position is a number that only grows, so a deletion does not shift later pages.
      const found = [...keys.values()]
        .flatMap(({ handled, createdMs, serial }) =>
          handled !== undefined && createdMs <= lastMs && serial > Number(after) ? [{ handled, serial }] : [],
        )
        .sort((one, other) => one.serial - other.serial);
      const items = found.slice(0, limit);
      return {
        items: items.map(({ handled }) => handled),
        next: found.length > limit ? `${items.at(-1)?.serial}` : undefined,
      };
    }, 'find-handler-keys');
  }

  delete(scopes: readonly KeyScope[]): Promise<number> {
    const { keys } = this.#manager.tables;
    return this.#manager.read(
      () => scopes.filter((scope) => keys.delete(textOf(scope))).length,
      'delete-keys',
    );
  }
}

/** Whether a change set's key exists already and has not expired. */
export function isKeyTaken({ keys, clock }: MemoryTables, { key }: ChangeSet): boolean {
  const stored = key && keys.get(textOf(key));
  return stored !== undefined && stored.expiresMs > clock.now().getTime();
}

/** Stores the key of a change set, if it has one, and replaces an expired one. */
export function storeKey(tables: MemoryTables, { key, action }: ChangeSet): void {
  if (key === undefined) return;
  const { keys, clock } = tables;
  const { namespace, principal, key: text, fingerprint, result, lifetimeMs, source } = key;
  const createdMs = clock.now().getTime();
  const handled = source === undefined ? undefined : { namespace, principal, key: text, source };
  const serial = tables.keyCount++;
  const stored = { fingerprint, result, actionId: action.id, actionName: action.name };
  keys.set(textOf(key), { ...stored, createdMs, expiresMs: createdMs + lifetimeMs, handled, serial });
}

function textOf({ namespace, principal, key }: KeyScope): string {
  return JSON.stringify([namespace, principal, key]);
}
