import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { lockedCount, rowsOf, withSession } from './database-session.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { problem } from './wallet-client.js';

const deposits = 64;

describe.each([
  ['by default', {}],
  ['with one attempt', { retry: { attemptsMax: 1 } }],
])('64 concurrent deposits, %s,', (_name, options) => {
  let service: TestService;

  beforeAll(async () => {
    service = await startTestService(options);
  });
  afterAll(() => stopTestService(service));

  test('all succeed or are refused as stale, without a gap', async () => {
    const { id } = await service.client.openWallet({ country: 'MX', initialBalance: '0' });
    const answers = await Promise.all(
      Array.from({ length: deposits }, () =>
        service.client.post(`/wallets/${id}/deposit`, { amount: '0.1' }),
      ),
    );
    const refused = answers.filter(({ status }) => status !== 200);
    for (const answer of refused) expect(answer).toMatchObject(problem(409, 'stale-record'));
    const successes = deposits - refused.length;
    expect(successes).toBeGreaterThan(0);

    const { balance, version } = await service.client.wallet(id);
    expect({ balance, version }).toEqual({ balance: tenths(successes), version: successes + 1 });
    const rows = await rowsOf(
      service.mexico,
      `select model_version::int as version, payload->>'newBalance' as balance from eventlog.events
       where model_id = $1 and event_type = 'WalletMoneyDepositedEvent' order by model_version`,
      [id],
    );
    const expected = Array.from({ length: successes }, (_, index) => ({
      version: index + 2,
      balance: tenths(index + 1),
    }));
    expect(rows).toEqual(expected);
  });
});

describe('a deposit into a wallet that another transaction changes', () => {
  let service: TestService;

  beforeAll(async () => {
    service = await startTestService({ retry: { attemptsMax: 1 } });
  });
  afterAll(() => stopTestService(service));

  test('is refused as stale after the last attempt, with nothing written', async () => {
    const { id } = await service.client.openWallet();
    await withSession(service.global, async (session) => {
      await session.query('begin');
      await session.query('update wallets set version = version + 1 where id = $1', [id]);
      const deposit = service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
      await expect.poll(() => lockedCount(service.global)).toBe(1);
      await session.query('commit');
      expect(await deposit).toMatchObject(problem(409, 'stale-record'));
    });
    expect(await service.client.wallet(id)).toMatchObject({ balance: '100', version: 2 });
    const events = 'select event_type from eventlog.events where model_id = $1';
    expect(await rowsOf(service.global, events, [id])).toEqual([{ event_type: 'WalletCreatedEvent' }]);
  });
});

/** The given number of times 0.1, as exact text. */
function tenths(count: number): string {
  const whole = Math.floor(count / 10);
  return count % 10 === 0 ? `${whole}` : `${whole}.${count % 10}`;
}
