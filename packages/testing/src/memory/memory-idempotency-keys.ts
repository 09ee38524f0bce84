import type { ChangeSet, IdempotencyKeys, KeyScope, StoredKey } from '@framework/core';
import type { MemoryTables } from './memory-tables.js';

/** The idempotency keys in one database in memory. */
export class MemoryIdempotencyKeys implements IdempotencyKeys {
  readonly #tables: MemoryTables;

  constructor(tables: MemoryTables) {
    this.#tables = tables;
  }

  async find(scope: KeyScope): Promise<StoredKey | undefined> {
    const { keys, clock } = this.#tables;
    const stored = keys.get(textOf(scope));
    if (stored === undefined || stored.expiresMs <= clock.now().getTime()) return undefined;
    const { expiresMs: _expiresMs, ...known } = stored;
    return known;
  }

  async deleteExpired(countMax: number): Promise<number> {
    const { keys, clock } = this.#tables;
    const nowMs = clock.now().getTime();
    const expired = [...keys]
      .filter(([, { expiresMs }]) => expiresMs <= nowMs)
      .sort(([, one], [, other]) => one.expiresMs - other.expiresMs)
      .slice(0, countMax);
    for (const [text] of expired) keys.delete(text);
    return expired.length;
  }
}

/** Whether a change set has a key that is there already and has not expired. */
export function isKeyTaken({ keys, clock }: MemoryTables, { key }: ChangeSet): boolean {
  const stored = key && keys.get(textOf(key));
  return stored !== undefined && stored.expiresMs > clock.now().getTime();
}

/** Stores the key of a change set, if it has one, in the place of an expired one. */
export function storeKey({ keys, clock }: MemoryTables, { key, action }: ChangeSet): void {
  if (key === undefined) return;
  const { fingerprint, result, lifetimeMs } = key;
  const expiresMs = clock.now().getTime() + lifetimeMs;
  keys.set(textOf(key), { fingerprint, result, actionId: action.id, actionName: action.name, expiresMs });
}

function textOf({ namespace, principal, key }: KeyScope): string {
  return JSON.stringify([namespace, principal, key]);
}
