import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';

import type { Wallet } from '../../src/wallet/wallet.js';
import { Fleet } from '../delivery/fleet.js';
import { Arrivals } from '../../../../packages/relay/test/faults/arrivals.js';
import { eventCountOf, expectArrived } from './expect-arrived.js';
import { type OwnBroker, sectionOf } from '../../../../packages/relay/test/faults/own-broker.js';
import { makeDeposits } from './paced-deposits.js';

const { eventCount: eventCountDefault, full } = eventCountOf(2_000);
const timeoutMs = full ? 1_200_000 : 300_000;
/** How much a test does. */
interface KillOptions {
  readonly eventCount?: number;
  readonly perSecond?: number;
  /** How long the relay waits for an answer of the broker. Default: as long as usual. */
  readonly answerMaxMs?: number;
  /**
   * How many relays are killed, each as soon as it has published something. Default: one after the other, each after a second, until
   * most events have arrived.
   */
  readonly killCount?: number;
}

/** Messages of a wallet are confirmed one after the other: with few wallets, what is read at once takes longer than a life. */
const walletCount = full ? 1_600 : 80;
const clientCount = 16;
/** Slow enough that processes are killed while events are committed. */
const perSecondDefault = full ? 1_500 : 250;
/** Short leases, so that a process that lives for a second publishes for most of it. */
const quickTakeover = { 'lease-ms': 500, 'cursor-save-ms': 100 };
const lifeMs = 1_000;
const killsMin = full ? 20 : 5;
const inFlightPatience = { timeout: 500, interval: 1 };
/** How many of them find events in flight. */
const killsInFlightMin = full ? 10 : 1;
/** The broker is restarted each time this share of the events has arrived: stopped properly once, and killed once. */
const restarts = [
  { share: 1 / 3, signal: 'SIGTERM' },
  { share: 2 / 3, signal: 'SIGKILL' },
] as const;
/** The relay is killed until at least this share of the events has arrived. */
const killedShare = 0.9;

/** Tests that a broker gets every event, although the relay is killed again and again. */
export function testRelayKills(
  name: string,
  open: (() => Promise<OwnBroker>) | undefined,
  options: KillOptions = {},
): void {
  test.skipIf(open === undefined)(
    `${name} gets every event in order, although the relay is killed again and again and the broker restarted twice`,
    { timeout: timeoutMs },
    async () => {
      expect(open).toBeDefined();
      if (open !== undefined) await killRelay(open, options);
    },
  );
}

async function killRelay(
  open: () => Promise<OwnBroker>,
  { eventCount = eventCountDefault, perSecond = perSecondDefault, answerMaxMs, killCount }: KillOptions,
): Promise<void> {
  const startedMs = performance.now();
  const broker = await open();
  onTestFinished(() => broker.end());
  const section = { name: 'events-to-broker', 'start-from': 'beginning', ...sectionOf(broker, answerMaxMs) };
  const [fleet] = await Promise.all([
    Fleet.create(quickTakeover, [section]),
    broker.start().then(() => broker.prepare()),
  ]);
  onTestFinished(() => fleet.end());
  const arrivals = new Arrivals();
  broker.consume((message) => arrivals.add(message));
  const readyMs = performance.now();

  const over = new AbortController();
  onTestFinished(() => over.abort());
  let committedCount = 0;
  const depositing = depositAll(fleet, { eventCount, perSecond }, over.signal, () => committedCount++);
  const isArrived = (share: number): boolean => arrivals.count >= share * eventCount;
  const restarting = restartBroker(broker, isArrived);
  let running = fleet.start('relay');
  const inFlight: number[] = [];
  const goesOn = (): boolean =>
    killCount === undefined
      ? !isArrived(killedShare) || inFlight.length < killsMin
      : inFlight.length < killCount;
  const killing = (async () => {
    while (goesOn()) {
      const bornMs = performance.now();
      const bornCount = arrivals.count;
      await running.printed('is ready');
      // On a slow machine each lives as long as its start took, so that some work gets done.
      if (killCount === undefined) await delay(Math.max(lifeMs, performance.now() - bornMs));
      else await vi.waitUntil(() => arrivals.count > bornCount, { timeout: timeoutMs / 2, interval: 5 });
      over.signal.throwIfAborted();
      // Where deposits are slow, most moments have nothing in flight: this waits a little for one that has.
      await vi.waitUntil(() => committedCount > arrivals.count, inFlightPatience).catch(() => undefined);
      running.kill('SIGKILL');
      inFlight.push(committedCount - arrivals.count);
      running = fleet.start('relay');
    }
  })();
  await Promise.all([depositing, restarting, killing]);
  await expectArrived(fleet, arrivals, timeoutMs / 3);
  const seconds = ((performance.now() - readyMs) / 1_000).toFixed(1);
  process.stdout.write(
    `${broker.name}: ${arrivals.count} events, ${arrivals.repeatCount} repeats, ${inFlight.length} relay processes killed, with ` +
      `${inFlight.join(', ')} events in flight, ${restarts.length} restarts of the broker, ${seconds} s, and ` +
      `${((readyMs - startedMs) / 1_000).toFixed(1)} s to prepare\n`,
  );
  expect(inFlight.filter((count) => count > 0).length).toBeGreaterThanOrEqual(killsInFlightMin);
  expect(running.running).toBe(true);
}

/** Opens wallets on both shards, and deposits into them until there are so many events. */
async function depositAll(
  fleet: Fleet,
  { eventCount, perSecond }: { readonly eventCount: number; readonly perSecond: number },
  until: AbortSignal,
  onCommitted: () => void,
): Promise<void> {
  const byId = new Map<string, Wallet>();
  const opening = Array.from({ length: clientCount }, async (_unused, client) => {
    for (let n = client; n < walletCount; n += clientCount) {
      const wallet = await fleet.openWallet(n % 2 === 0 ? 'DE' : 'MX');
      byId.set(wallet.id.value, wallet);
      onCommitted();
    }
  });
  await Promise.all(opening);
  await makeDeposits({
    walletIds: [...byId.keys()],
    clientCount,
    perSecond,
    until,
    countMax: eventCount - walletCount,
    deposit: async (walletId) => {
      const wallet = byId.get(walletId);
      if (wallet === undefined) return;
      await fleet.deposit(wallet);
      onCommitted();
    },
  });
}

async function restartBroker(broker: OwnBroker, isArrived: (share: number) => boolean): Promise<void> {
  for (const { share, signal } of restarts) {
    await vi.waitFor(() => expect(isArrived(share)).toBe(true), { timeout: timeoutMs / 2, interval: 20 });
    await broker.stop(signal);
    await broker.start();
  }
}
