import { afterEach, expect, test } from 'vitest';
import { lockedCount, rowsOf, withSession } from './database-session.js';
import { Fleet } from './delivery/fleet.js';
import { type ShardDatabases, startTestService, stopTestService } from './start-test-service.js';
import { type Answer, WalletClient } from './wallet-client.js';

const walletCount = 16;
const ends: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

test('concurrent deposits share transactions', async () => {
  const service = await startTestService({ groupCommit: true });
  ends.push(() => stopTestService(service));
  expect(await transactionCount(service.client, service)).toBeLessThan(walletCount);
});

test('concurrent deposits share transactions in a separate process', async () => {
  const fleet = await Fleet.create();
  ends.push(() => fleet.end());
  const client = new WalletClient(await fleet.start('http', { FRAMEWORK_GROUPCOMMIT: 'true' }).served());
  expect(await transactionCount(client, fleet.databases)).toBeLessThan(walletCount);
});

/** Deposits into many wallets while the deposit into another one waits; returns the number of transactions. */
async function transactionCount(client: WalletClient, { global }: ShardDatabases): Promise<number> {
  const deposit = (id: string): Promise<Answer> => client.post(`/wallets/${id}/deposit`, { amount: '1' });
  const { id: held } = await client.openWallet();
  const wallets = await Promise.all(Array.from({ length: walletCount }, () => client.openWallet()));
  const ids = wallets.map(({ id }) => id);
  await withSession(global, async (session) => {
    await session.query('begin');
    await session.query('select from wallets where id = $1 for update', [held]);
    const first = deposit(held);
    await expect.poll(() => lockedCount(global)).toBe(1);
    const others = ids.map(deposit);
    // All deposits have arrived when these requests are answered.
    await Promise.all(ids.map((id) => client.wallet(id)));
    await session.query('commit');
    for (const { status } of await Promise.all([first, ...others])) expect(status).toBe(200);
  });
  const text = 'select distinct xmin::text from wallets where id = any($1)';
  return (await rowsOf(global, text, [ids])).length;
}
