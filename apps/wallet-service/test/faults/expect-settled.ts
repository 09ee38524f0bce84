import assert from 'node:assert/strict';
import { vi } from 'vitest';
import { rowsOf } from '../database-session.js';
import { moneyByCurrency } from '../money-in-all.js';
import type { ShardDatabases } from '../start-test-service.js';
import type { Traffic } from './traffic.js';

/** That every transfer of the traffic arrives within a time, and that all money is there, no more and no less. */
export async function expectSettled(
  shards: ShardDatabases,
  traffic: Traffic,
  withinMs: number,
): Promise<void> {
  await traffic.end();
  await vi.waitFor(async () => assert.deepEqual(await transfersIn(shards, 'INITIATED'), []), {
    timeout: withinMs,
    interval: 100,
  });
  assert.deepEqual(await transfersIn(shards, 'REFUNDED'), []);
  const completed = new Set(await transfersIn(shards, 'COMPLETED'));
  assert.deepEqual(
    [...traffic.transfers].filter((id) => !completed.has(id)),
    [],
  );
  assert.equal((await moneyByCurrency(shards))['EUR'], traffic.money);
}

async function transfersIn({ global, mexico }: ShardDatabases, state: string): Promise<readonly unknown[]> {
  const text = 'select id from transfers where state = $1';
  const rows = await Promise.all([global, mexico].map((database) => rowsOf(database, text, [state])));
  return rows.flat().map(({ id }) => id);
}
