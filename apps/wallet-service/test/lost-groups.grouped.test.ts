import type { FaultProxy, Verdict } from '@framework/testing';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rowsOf } from './database-session.js';
import { TransferClient } from './delivery/transfer-client.js';
import { startProxiedService } from './start-proxied-service.js';
import type { TestService } from './start-test-service.js';
import { type WalletBody, problem } from './wallet-client.js';

const walletCount = 16;
const depositsPerWallet = 3;

describe('a network that fails during a group commit', () => {
  let service: TestService;
  let proxy: FaultProxy;
  let stop: () => Promise<void>;

  beforeAll(async () => {
    ({ service, proxy, stop } = await startProxiedService({
      mexico: { 'statement-timeout-ms': 1_000, 'acquisition-timeout-ms': 2_000 },
    }));
  });
  afterAll(() => stop());

  const openWallets = (): Promise<readonly WalletBody[]> =>
    Promise.all(Array.from({ length: walletCount }, () => service.client.openWallet({ country: 'MX' })));
  const deposit = ({ id }: WalletBody) => service.client.post(`/wallets/${id}/deposit`, { amount: '1' });

  test("does not prevent a truthful answer when only the commit's answer was lost", async () => {
    const wallets = await openWallets();
    let cuts = 0;
    judgeGroups(proxy, () => (cuts++ === 0 ? 'forward-and-cut' : 'forward'));
    const answers = await Promise.all(wallets.map(deposit));
    expect(cuts).toBeGreaterThan(0);
    expect(answers).toMatchObject(wallets.map(() => ({ status: 200, body: { balance: '101', version: 2 } })));
    for (const { id } of wallets)
      expect(await service.client.wallet(id)).toMatchObject({ balance: '101', version: 2 });
  });

  test('leaves each outcome unknown, and reports so, if it cannot be found in time', async () => {
    const wallets = await openWallets();
    let isCut = false;
    proxy.judge = ({ direction, bytes }) => {
      if (isCut) return 'cut';
      isCut = direction === 'to-server' && bytes.includes('framework_group');
      return isCut ? 'forward-and-cut' : 'forward';
    };
    const answers = await Promise.all(wallets.map(deposit));
    proxy.judge = () => 'forward';
    const unknown = wallets.filter((_wallet, index) => answers[index]?.status === 504);
    expect(unknown.length).toBeGreaterThan(1);
    for (const answer of answers.filter(({ status }) => status === 504))
      expect(answer).toMatchObject(problem(504, 'outcome-unknown'));
    const text = 'select distinct version::int from wallets where id = any($1)';
    await expect
      .poll(() => rowsOf(service.mexico, text, [unknown.map(({ id }) => id)]))
      .toEqual([{ version: 2 }]);
  });

  test('loses and repeats nothing for clients that repeat requests under their keys', async () => {
    const wallets = await openWallets();
    const client = new TransferClient(async () => service.url);
    let turn = 0;
    const verdicts: readonly Verdict[] = ['cut', 'forward-and-cut', 'forward'];
    judgeGroups(proxy, () => verdicts[turn++ % 3]!);
    const deposits = Array.from({ length: depositsPerWallet }, () => wallets).flat();
    await Promise.all(deposits.map(({ id }) => client.post(`/wallets/${id}/deposit`, { amount: '1' })));
    proxy.judge = () => 'forward';
    const expected = { balance: String(100 + depositsPerWallet), version: 1 + depositsPerWallet };
    for (const { id } of wallets) expect(await service.client.wallet(id)).toMatchObject(expected);
    expect(turn).toBeGreaterThan(0);
  });
});

/** Decides about messages with a group of deposits to the server, and forwards everything else. */
function judgeGroups(proxy: FaultProxy, verdictOf: () => Verdict): void {
  proxy.judge = ({ direction, bytes }) =>
    direction === 'to-server' && bytes.includes('framework_group') ? verdictOf() : 'forward';
}
