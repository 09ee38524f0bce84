import type { FaultProxy, MessageOutcome } from '@framework/testing';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
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
      groupCommit: true,
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
    let committed: readonly WalletBody[] | undefined;
    proxy.judge = ({ direction, bytes }) => {
      if (committed !== undefined) return 'cut';
      if (direction === 'to-client' || !bytes.includes('framework_group')) return 'forward';
      committed = wallets.filter(({ id }) => bytes.includes(id));
      return 'forward-and-cut';
    };
    const answers = await Promise.all(wallets.map(deposit));
    proxy.judge = () => 'forward';
    const idsOfGroup = committed?.map(({ id }) => id) ?? [];
    expect(idsOfGroup.length).toBeGreaterThan(1);
    // A second group may have been on its way, which the server never got: its outcome is just as unknown to the service.
    const versions: Readonly<Record<number, readonly number[]>> = { 200: [2], 503: [1], 504: [1, 2] };
    for (const [index, { id }] of wallets.entries()) {
      const status = answers[index]?.status ?? 0;
      const expected = idsOfGroup.includes(id) ? [2] : (versions[status] ?? []);
      const version = async (): Promise<number> => (await service.client.wallet(id)).version;
      await expect.poll(version).toSatisfy((found: number) => expected.includes(found));
    }
    const ofGroup = answers.filter((_answer, index) => idsOfGroup.includes(wallets[index]?.id ?? ''));
    expect(ofGroup).toMatchObject(idsOfGroup.map(() => problem(504, 'outcome-unknown')));
  });

  test('loses and repeats nothing for clients that repeat requests under their keys', async () => {
    const wallets = await openWallets();
    const client = new TransferClient(async () => service.url);
    let turn = 0;
    const verdicts: readonly MessageOutcome[] = ['cut', 'forward-and-cut', 'forward'];
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
function judgeGroups(proxy: FaultProxy, verdictOf: () => MessageOutcome): void {
  proxy.judge = ({ direction, bytes }) =>
    direction === 'to-server' && bytes.includes('framework_group') ? verdictOf() : 'forward';
}
