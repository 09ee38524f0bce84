import { setTimeout as delay } from 'node:timers/promises';
import { seededRandom } from '@framework/testing';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { rowsOf } from '../database-session.js';
import { moneyByCurrency } from '../money-in-all.js';
import { anOwner } from '../wallet-client.js';
import { Fleet } from './fleet.js';
import { MortalProcess } from './mortal-process.js';
import { seed } from '../seed.js';
import { TransferClient } from './transfer-client.js';

const httpKillsMin = 2;
const workerKillsMin = 4;
const transfersMin = 60;
/** The longest time that a client waits between two transfers. */
const pauseMaxMs = 200;

interface TestWallet {
  readonly id: string;
  /** How a transfer to the wallet ends; `undefined` if it may end either way. */
  readonly end: 'COMPLETED' | 'REFUNDED' | undefined;
}

let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.create();
});
afterAll(() => fleet.end());

test(
  `transfers end and money stays constant while processes are killed (seed ${seed})`,
  { timeout: 600_000 },
  async () => {
    const http = new MortalProcess(() => fleet.start('http'), seededRandom(seed));
    const workers = [1, 2].map((n) => new MortalProcess(() => fleet.start('worker'), seededRandom(seed + n)));
    // This worker takes its share of the source's events, and can decide only about transfers to its own shard.
    const partial = new MortalProcess(() => fleet.startGlobalOnly(), seededRandom(seed + 3));
    const client = new TransferClient(() => http.ready());
    const { open, closing, others } = await openWallets(client);
    const money = await moneyByCurrency(fleet.databases);
    const [enough, over] = [new AbortController(), new AbortController()];
    const samples = sampleMoney(money, over.signal);
    samples.catch(() => enough.abort());

    const dying = [http, ...workers, partial].map((each) => each.die(enough.signal));
    const ends = new Map<string, TestWallet['end']>();
    const workerKills = (): number => workers.reduce((sum, { killCount }) => sum + killCount, 0);
    const onTransfer = async (): Promise<void> => {
      if (ends.size === transfersMin / 2) await Promise.all(closing.map(({ id }) => close(client, id)));
      const killed =
        http.killCount >= httpKillsMin && workerKills() >= workerKillsMin && partial.killCount > 0;
      if (killed && client.lostCount > 0 && ends.size >= transfersMin) enough.abort();
    };
    const sending = open.map(async ({ id: sourceId }, n) => {
      const random = seededRandom(seed + 100 + n);
      const dests = [...open, ...others].filter(({ id }) => id !== sourceId);
      while (!enough.signal.aborted) {
        const { id: destId, end } = dests[Math.floor(random() * dests.length)]!;
        const amount = String(1 + Math.floor(random() * 9));
        const { accepted, body } = await client.post('/transfers', { sourceId, destId, amount });
        if (accepted) ends.set(String(body['id']), end);
        await onTransfer();
        // Traffic pauses while further kills are awaited, so that no backlog grows that the workers must work off at the end.
        await delay(random() * (ends.size < transfersMin ? pauseMaxMs : 10 * pauseMaxMs));
      }
    });
    await Promise.all([...sending, ...dying]);
    partial.end();
    await nothingInTransit();
    over.abort();
    process.stdout.write(
      `${http.killCount} http processes and ${workerKills()} workers killed, ${ends.size} transfers, ` +
        `${client.lostCount} answers lost, ${client.replayedCount} replayed, money counted ${await samples} times\n`,
    );

    expect(await moneyByCurrency(fleet.databases)).toEqual(money);
    const [completed, refunded] = [await transfersIn('COMPLETED'), await transfersIn('REFUNDED')];
    expect([...completed, ...refunded].toSorted()).toEqual([...ends.keys()].toSorted());
    for (const id of completed) expect(ends.get(id)).not.toBe('REFUNDED');
    for (const id of refunded) expect(ends.get(id)).not.toBe('COMPLETED');
    expect(await receivedTransfers()).toEqual(completed);
    expect(await decidedTransfers('RECEIVED')).toEqual(completed);
    expect(await decidedTransfers('REFUSED')).toEqual(refunded);
  },
);

/** The wallets involved, in two currencies and on both shards; some are closed before or meanwhile. */
async function openWallets(client: TransferClient) {
  const wallets = (count: number, currency: string, end: TestWallet['end']): Promise<readonly TestWallet[]> =>
    Promise.all(
      Array.from({ length: count }, async (_unused, n) => {
        const country = n % 2 === 0 ? 'DE' : 'MX';
        const wallet = { country, ownerId: anOwner, currency, initialBalance: '1000' };
        const { body } = await client.post('/wallets', wallet);
        return { id: String(body['id']), end };
      }),
    );
  const open = await wallets(8, 'EUR', 'COMPLETED');
  const foreign = await wallets(2, 'USD', 'REFUNDED');
  const closed = await wallets(2, 'EUR', 'REFUNDED');
  const closing = await wallets(2, 'EUR', undefined);
  for (const { id } of closed) await close(client, id);
  return { open, closing, others: [...foreign, ...closed, ...closing] };
}

async function close(client: TransferClient, id: string): Promise<void> {
  await client.post(`/wallets/${id}/close`, {});
}

/** Adds up all money again and again, which must always be the same; returns how often. */
async function sampleMoney(money: object, over: AbortSignal): Promise<number> {
  let count = 0;
  for (; !over.aborted; count++) expect(await moneyByCurrency(fleet.databases)).toEqual(money);
  return count;
}

/** Waits until every transfer has ended; gives up if their number no longer decreases. */
async function nothingInTransit(before = Infinity): Promise<void> {
  const left = await vi.waitFor(
    async () => {
      const { length } = await transfersIn('INITIATED');
      expect(length).toBeLessThan(before);
      return length;
    },
    { timeout: 30_000, interval: 100 },
  );
  if (left > 0) await nothingInTransit(left);
}

function transfersIn(state: string): Promise<readonly string[]> {
  return texts('select id as text from transfers where state = $1', state);
}

/** The transfers that were received, once for each receipt. */
function receivedTransfers(): Promise<readonly string[]> {
  const text = `select payload ->> 'transferId' as text from eventlog.events where event_type = $1`;
  return texts(text, 'WalletTransferReceivedEvent');
}

function decidedTransfers(state: string): Promise<readonly string[]> {
  return texts('select transfer_id as text from transfer_decisions where state = $1', state);
}

/** The texts that a query finds in both databases, sorted. */
async function texts(query: string, value: string): Promise<readonly string[]> {
  const { global, mexico } = fleet.databases;
  const rows = await Promise.all([global, mexico].map((database) => rowsOf(database, query, [value])));
  return rows
    .flat()
    .map(({ text }) => String(text))
    .toSorted();
}
