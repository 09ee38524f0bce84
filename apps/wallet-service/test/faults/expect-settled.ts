import assert from 'node:assert/strict';
import { type RecordState, checkRecord } from '@framework/testing/record';
import { vi } from 'vitest';
import { rowsOf } from '../database-session.js';
import { moneyByCurrency } from '../money-in-all.js';
import type { ShardDatabases } from '../start-test-service.js';
import type { Answer } from '../wallet-client.js';
import type { Traffic } from './traffic.js';

/** How many of the calls that were answered long ago are repeated. */
const repeatCount = 10;

/**
 * Checks that every transfer ends in time, and that those of the traffic have arrived; that the databases match what clients were
 * told, including those that ask again; and that all money is there, no more and no less.
 */
export async function expectSettled(
  shards: ShardDatabases,
  traffic: Traffic,
  withinMs: number,
): Promise<void> {
  await traffic.end();
  await vi.waitFor(async () => assert.equal(await unfinishedCount(shards), 0), {
    timeout: withinMs,
    interval: 100,
  });
  const { recorder } = traffic;
  for (const call of recorder.calls.filter(({ outcome }) => outcome === 'ok').slice(0, repeatCount))
    await recorder.repeat(call);
  const violations = await checkRecord({
    recorder,
    databases: [shards.global.url, shards.mexico.url],
    tables: { Wallet: 'wallets', Transfer: 'transfers', TransferDecision: 'transfer_decisions' },
    // All other requests have wallets of their own.
    mayBeThere: ({ params }) => !traffic.owns(params),
    check: (state) => checkTransfers(state, traffic),
  });
  assert.deepEqual(violations, []);
  assert.equal((await moneyByCurrency(shards))['EUR'], traffic.money);
}

async function checkTransfers(
  { rows }: RecordState<Answer>,
  { transfers }: Traffic,
): Promise<readonly string[]> {
  const states = await rows(`select id, state from transfers where state <> 'COMPLETED'`);
  const completed = new Set(
    (await rows(`select id from transfers where state = 'COMPLETED'`)).map(({ id }) => id),
  );
  return [
    ...states.map(({ id, state }) => `the transfer ${String(id)} is ${String(state)}`),
    ...[...transfers].filter((id) => !completed.has(id)).map((id) => `the transfer ${id} has not arrived`),
  ];
}

async function unfinishedCount({ global, mexico }: ShardDatabases): Promise<number> {
  const text = `select from transfers where state = 'INITIATED'`;
  const rows = await Promise.all([global, mexico].map((database) => rowsOf(database, text)));
  return rows.flat().length;
}
