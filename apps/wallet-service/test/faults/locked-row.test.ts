import { randomUUID } from 'node:crypto';
import { afterEach, expect, test, vi } from 'vitest';
import { withSession } from '../database-session.js';
import { type TestService, startTestService, stopTestService } from '../start-test-service.js';
import type { Answer, WalletBody } from '../wallet-client.js';

/** More deposits than there are connections. */
const lockedOutCount = 40;
/** More transfers than a handler handles at a time, and so many that others would be late if each kept its place for a second. */
const lockedTransferCount = 240;
/** More wallets than the number of writes that may wait for locks. */
const lockedWalletCount = 12;
const currency = 'EUR';

let service: TestService;

afterEach(() => stopTestService(service));

test('a locked wallet delays no other wallet, and its deposits are answered truthfully', async () => {
  service = await startTestService({ global: { 'statement-timeout-ms': 3_000 } });
  const { client } = service;
  const open = () => client.openWallet({ currency, initialBalance: '0' });
  const locked = await open();
  const others = await Promise.all(Array.from({ length: 5 }, open));
  const keys = Array.from({ length: lockedOutCount }, () => randomUUID());
  const depositUnder = (key: string): Promise<Answer> =>
    client.postKeyed(`/wallets/${locked.id}/deposit`, { amount: '1' }, key);

  const answers = await withSession(service.global, async (session) => {
    await session.query('begin');
    await session.query('select from wallets where id = $1 for update', [locked.id]);
    const startedMs = performance.now();
    const lockedOut = Promise.all(keys.map(depositUnder));
    const over = new AbortController();
    void lockedOut.finally(() => over.abort());
    const deposits = await Promise.all(others.map(({ id }) => depositUntil(id, over.signal)));
    // The lock is kept until each locked-out deposit has been answered, which takes longer than a statement may.
    await session.query('rollback');
    const lockedOutMs = performance.now() - startedMs;
    // This holds however busy the machine is: behind the lock, these deposits would have waited as long as the locked-out ones.
    expect(Math.max(...deposits.map(({ slowestMs }) => slowestMs))).toBeLessThan(lockedOutMs / 2);
    expect(Math.min(...deposits.map(({ count }) => count))).toBeGreaterThan(20);
    return lockedOut;
  });

  for (const { status, body, headers } of answers) {
    expect([status, body['code'], headers['retry-after']]).toEqual([503, 'shard-unavailable', '1']);
    expect(body['detail']).toBe(
      'Shard (0, 0) is unavailable: another session holds a lock on the row to be changed. Nothing was written; try again later.',
    );
  }
  const refused = service.log.filter((line) => line.includes('"msg":"requests are refused"'));
  // Fewer than there were refusals: one for each reason.
  expect(refused.length).toBeGreaterThan(0);
  expect(refused.length).toBeLessThan(10);
  for (const line of refused) {
    expect(line).toMatch(
      /shard \(0, 0\).* is unavailable: .*another session (holds|may hold) a lock on .*pg_locks and pg_stat_activity/,
    );
  }
  expect(await client.wallet(locked.id)).toMatchObject({ balance: '0', version: 1 });

  await vi.waitFor(async () => expect((await client.get('/health/ready')).status).toBe(200), 30_000);
  const repeated = [];
  for (const key of keys) repeated.push(await depositUnder(key));
  expect(repeated.map(({ status }) => status)).toEqual(keys.map(() => 200));
  expect(await client.wallet(locked.id)).toMatchObject({ balance: String(lockedOutCount) });
});

test('transfers to locked wallets delay no others and arrive once the wallets are unlocked', async () => {
  // No caller has to wait this long.
  const never = { 'statement-timeout-ms': 120_000, 'acquisition-timeout-ms': 120_000 };
  service = await startTestService({ mexico: never });
  const { client } = service;
  const source = await client.openWallet({ initialBalance: String(lockedTransferCount + 1) });
  const open = () => client.openWallet({ country: 'MX' });
  const locked = await Promise.all(Array.from({ length: lockedWalletCount }, open));
  const other = await open();
  const transferTo = async (dest: WalletBody): Promise<string> => {
    const transfer = { sourceId: source.id, destId: dest.id, amount: '1' };
    const { body, status } = await client.post('/transfers', transfer);
    expect(status).toBe(202);
    return String(body['id']);
  };
  const completed = async (ids: readonly string[]): Promise<void> => {
    const transfers = await Promise.all(ids.map((id) => client.get(`/transfers/${id}`)));
    expect(transfers.map(({ body }) => body['state'])).toEqual(ids.map(() => 'COMPLETED'));
  };
  const waiting: string[] = [];
  const deposits: Promise<Answer>[] = [];
  await withSession(service.mexico, async (session) => {
    await session.query('begin');
    await session.query('select from wallets where id = any($1) for update', [locked.map(({ id }) => id)]);
    const endDeposits = depositOften(locked[0]!.id, deposits);
    try {
      for (let n = 0; n < lockedTransferCount; n++)
        waiting.push(await transferTo(locked[n % lockedWalletCount]!));
      const beside = await transferTo(other);
      // This is sooner than if each transfer to a locked wallet had waited for a second.
      await vi.waitFor(() => completed([beside]), { timeout: 15_000, interval: 50 });
    } finally {
      endDeposits();
    }
    await session.query('rollback');
  });
  await vi.waitFor(() => completed(waiting), { timeout: 60_000, interval: 1_000 });
  const depositCount = (await Promise.all(deposits)).filter(({ status }) => status === 200).length;
  const wallets = await Promise.all(locked.map(({ id }) => client.wallet(id)));
  const received = 100 + lockedTransferCount / lockedWalletCount;
  expect(wallets.map(({ balance }) => balance)).toEqual([
    String(received + depositCount),
    ...Array<string>(lockedWalletCount - 1).fill(String(received)),
  ]);
});

/** Deposits into a wallet again and again; returns how often, and the longest duration. */
async function depositUntil(
  id: string,
  over: AbortSignal,
): Promise<{ readonly count: number; readonly slowestMs: number }> {
  let [count, slowestMs] = [0, 0];
  const statuses: number[] = [];
  const depositOnce = async (): Promise<void> => {
    const startedMs = performance.now();
    count++;
    const { status } = await service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
    statuses.push(status);
    slowestMs = Math.max(slowestMs, performance.now() - startedMs);
    expect(over.aborted).toBe(true);
  };
  await vi.waitFor(depositOnce, { timeout: 60_000, interval: 20 });
  // A call without an answer has no status, and so counts as a failure, too.
  expect(statuses).toEqual(Array<number>(count).fill(200));
  return { count, slowestMs };
}

/**
 * Begins a deposit into a wallet ten times per second, even while none of them is answered; returns a function that stops this.
 */
function depositOften(id: string, deposits: Promise<Answer>[]): () => void {
  const timer = setInterval(() => {
    const deposit = service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
    deposit.catch(() => undefined);
    deposits.push(deposit);
  }, 100);
  return () => clearInterval(timer);
}
