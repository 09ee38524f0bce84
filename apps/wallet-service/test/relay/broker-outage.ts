import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';

import { Fleet } from '../delivery/fleet.js';
import { WalletClient } from '../wallet-client.js';
import { Arrivals } from '../../../../packages/relay/test/faults/arrivals.js';
import { eventCountOf, expectArrived } from './expect-arrived.js';
import { type OwnBroker, sectionOf } from '../../../../packages/relay/test/faults/own-broker.js';
import { makeDeposits } from './paced-deposits.js';

const { full } = eventCountOf(0);
const timeoutMs = full ? 900_000 : 300_000;
const downMsDefault = full ? 60_000 : 4_000;
const beforeMs = full ? 10_000 : 1_000;
const perSecond = full ? 500 : 60;
/** Messages of a wallet are confirmed one after the other: with few wallets, that limits how fast a backlog is published. */
const walletCountDefault = full ? 1_600 : 96;
const clientCount = full ? 32 : 8;
const readinessMs = 100;

/** How long a test takes. */
interface OutageOptions {
  readonly downMs?: number;
  readonly walletCount?: number;
  /** How long the relay waits for an answer of the broker. Default: as long as usual. */
  readonly answerMaxMs?: number;
}

interface Readiness {
  readonly shards: readonly { readonly status: string; readonly cause?: string }[];
}

type Phase = 'before' | 'during' | 'after';

/** Tests that no request notices the outage of a broker, and that the broker gets everything afterwards. */
export function testBrokerOutage(
  name: string,
  open: (() => Promise<OwnBroker>) | undefined,
  options: OutageOptions = {},
): void {
  test.skipIf(open === undefined)(
    `no request notices that ${name} is down, which gets every event in order afterwards`,
    { timeout: timeoutMs },
    async () => {
      expect(open).toBeDefined();
      if (open !== undefined) await stopBroker(open, options);
    },
  );
}

async function stopBroker(
  open: () => Promise<OwnBroker>,
  { downMs = downMsDefault, walletCount = walletCountDefault, answerMaxMs }: OutageOptions,
): Promise<void> {
  const broker = await open();
  onTestFinished(() => broker.end());
  const section = { name: 'events-to-broker', 'start-from': 'beginning', ...sectionOf(broker, answerMaxMs) };
  const [fleet] = await Promise.all([
    Fleet.create({}, [section]),
    broker.start().then(() => broker.prepare()),
  ]);
  onTestFinished(() => fleet.end());
  const arrivals = new Arrivals();
  broker.consume((message) => arrivals.add(message));
  // The same process serves requests and relays: nothing else would share so much.
  const client = new WalletClient(await fleet.start('all').served());
  const requests = await Requests.begin(client, walletCount);
  onTestFinished(() => requests.end());

  await requests.goOn(beforeMs);
  requests.phase = 'during';
  await broker.stop('SIGKILL');
  const [stoppedMs, stoppedCount] = [performance.now(), requests.committedCount];
  await requests.goOn(downMs);
  const rate = ((requests.committedCount - stoppedCount) * 1_000) / (performance.now() - stoppedMs);
  const backlog = requests.committedCount - arrivals.count;
  await broker.start();
  requests.phase = 'after';
  const backMs = performance.now();
  const backCount = arrivals.count;
  const firstMs = await reached(() => arrivals.count > backCount);
  const drainedMs = await reached(() => requests.committedCount - arrivals.count < perSecond / 2);
  const drainedCount = arrivals.count - backCount;
  await requests.end();
  await expectArrived(fleet, arrivals, timeoutMs / 3);

  const drainRate = (drainedCount * 1_000) / Math.max(1, drainedMs - firstMs);
  process.stdout.write(
    `${broker.name} down for ${seconds(downMs)} s at ${rate.toFixed(0)} events/s: ${requests.latencies()}; ${backlog} events waited, ` +
      `the first arrived ${seconds(firstMs - backMs)} s after the broker was back, and ${drainedCount} in ` +
      `${seconds(drainedMs - firstMs)} s, ${drainRate.toFixed(0)} events/s, ${(drainRate / rate).toFixed(1)} times the rate of ` +
      `arrival; ${arrivals.count} events, ${arrivals.repeatCount} repeats, ready ${requests.readyCount} times, unready ` +
      `${requests.unready.length} times\n`,
  );
  expect(backlog).toBeGreaterThan(0);
  expect(requests.failures).toEqual([]);
  expect(requests.readyDuringCount).toBeGreaterThan(0);
  // On a machine that is too busy, a database may not answer in time: then the answer names its shard.
  expect(requests.unready.filter(({ shards }) => shards.every(({ status }) => status === 'ready'))).toEqual(
    [],
  );
}

function seconds(ms: number): string {
  return (ms / 1_000).toFixed(1);
}

/** When a condition first holds, as a time of `performance`. */
async function reached(condition: () => boolean): Promise<number> {
  await vi.waitFor(() => expect(condition()).toBe(true), { timeout: timeoutMs / 3, interval: 10 });
  return performance.now();
}

/** Deposits at a fixed rate by HTTP, and questions whether the service is ready, until they are ended. */
class Requests {
  phase: Phase = 'before';
  readonly failures: unknown[] = [];
  committedCount = 0;
  readyCount = 0;
  readyDuringCount = 0;
  /** The answers that said that the service is not ready. */
  readonly unready: Readiness[] = [];
  readonly #latenciesMs: Readonly<Record<Phase, number[]>> = { before: [], during: [], after: [] };
  readonly #over = new AbortController();
  #sending: Promise<unknown> = Promise.resolve();

  static async begin(client: WalletClient, walletCount: number): Promise<Requests> {
    const requests = new Requests();
    const walletIds: string[] = [];
    const opening = Array.from({ length: clientCount }, async (_unused, first) => {
      for (let n = first; n < walletCount; n += clientCount)
        walletIds.push((await client.openWallet({ country: n % 2 === 0 ? 'DE' : 'MX' })).id);
    });
    await Promise.all(opening);
    requests.committedCount = walletCount;
    const { signal } = requests.#over;
    const depositing = makeDeposits({
      walletIds,
      clientCount,
      perSecond,
      until: signal,
      deposit: (walletId) => requests.#deposit(client, walletId),
    });
    requests.#sending = Promise.all([depositing, requests.#askReadiness(client, signal)]);
    return requests;
  }

  /** Lets them go on for a while. */
  async goOn(durationMs: number): Promise<void> {
    await delay(durationMs, undefined, { signal: this.#over.signal });
  }

  /** Sends nothing more, and waits for the answers. */
  async end(): Promise<void> {
    this.#over.abort();
    await this.#sending;
  }

  /** How long the requests took in each phase. */
  latencies(): string {
    const texts = Object.entries(this.#latenciesMs).map(([phase, latenciesMs]) => {
      const sorted = latenciesMs.toSorted((one, other) => one - other);
      const at = (share: number): string =>
        (sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0).toFixed(1);
      return `${phase} p50 ${at(0.5)} ms, p99 ${at(0.99)} ms of ${sorted.length} requests`;
    });
    return texts.join(', ');
  }

  async #deposit(client: WalletClient, walletId: string): Promise<void> {
    const { phase } = this;
    const sentMs = performance.now();
    try {
      const { status, body } = await client.post(`/wallets/${walletId}/deposit`, { amount: '1' });
      this.#latenciesMs[phase].push(performance.now() - sentMs);
      if (status === 200) this.committedCount++;
      else this.failures.push({ phase, status, body });
    } catch (error) {
      this.failures.push({ phase, error });
    }
  }

  async #askReadiness(client: WalletClient, until: AbortSignal): Promise<void> {
    while (!until.aborted) {
      const { phase } = this;
      const { status, body } = await client.get('/health/ready');
      if (status === 200) this.readyCount++;
      else this.unready.push(body as object as Readiness);
      if (status === 200 && phase === 'during') this.readyDuringCount++;
      await delay(readinessMs, undefined, { signal: until }).catch(() => undefined);
    }
  }
}
