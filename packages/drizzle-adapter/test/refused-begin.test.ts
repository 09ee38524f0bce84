// @module-tag postgres
import { systemClock } from '@framework/core';
import { Account, firstShard, once } from '@framework/conformance';
import { createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';

afterEach(() => vi.restoreAllMocks());

/** Makes the server refuse the statement that opens a transaction, as when an administrator cancels just that. */
function refuseBegin(): { readonly refused: () => number } {
  let refused = 0;
  const { query } = pg.Client.prototype as unknown as { query: (...args: unknown[]) => unknown };
  vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: unknown, ...args: unknown[]) {
    const [text, ...rest] = args;
    if (typeof text !== 'string' || !text.startsWith('begin')) return query.apply(this, args);
    refused++;
    return query.apply(this, [`do $$ begin raise sqlstate '57014'; end $$; ${text}`, ...rest]);
  });
  return { refused: () => refused };
}

test.each([undefined, 'key-1'])(
  'a plan of many statements writes nothing when the server refuses to begin its transaction (key: %s)',
  async (idempotencyKey) => {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    const registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
    onTestFinished(() => registry.close());
    await registry.ready();
    const suite = suiteOn(registry, { groupCommit: false });
    const accounts = Array.from({ length: 100 }, () => Account.open(firstShard, systemClock.now()));
    const configuration = { ...once, ...(idempotencyKey !== undefined && { idempotencyKey }) };
    const { refused } = refuseBegin();
    const failed = suite.stage((plan) => void plan.addAll(accounts), configuration);
    await expect(failed).rejects.toMatchObject({ code: 'shard-unavailable' });
    expect(refused()).toBe(1);
    expect(await suite.accounts.count()).toBe(0);
    vi.restoreAllMocks();
    await suite.stage((plan) => void plan.addAll(accounts), configuration);
    expect(await suite.accounts.count()).toBe(100);
  },
);
