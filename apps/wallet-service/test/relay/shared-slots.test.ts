import { DeliveryOperator } from '@framework/events';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { rowsOf } from '../database-session.js';
import { Fleet } from '../delivery/fleet.js';
import type { ServiceProcess } from '../service-process.js';
import { WebhookReceiver } from '../webhook-receiver.js';
import { Arrivals } from '../../../../packages/relay/test/faults/arrivals.js';
import { expectArrived } from './expect-arrived.js';
import { makeDeposits } from './paced-deposits.js';

const patience = { timeout: 60_000, interval: 20 };
const relayName = 'events-to-partner';
const walletCount = 16;
const depositCount = 240;
const load = { clientCount: 8, perSecond: 120 };
/** One relay is killed when so many events have arrived. */
const killedAfter = 60;

let partner: WebhookReceiver;
let fleet: Fleet;

beforeEach(async () => {
  partner = new WebhookReceiver();
  await partner.open();
  fleet = await Fleet.create({}, [{ name: relayName, 'start-from': 'beginning', webhooks: partner.section }]);
});
afterEach(async () => {
  await fleet.end();
  await partner.close();
});

test('two relay processes share the slots, and when one is killed, the other publishes everything in order', async () => {
  const [killed, survivor] = [fleet.start('relay'), fleet.start('relay')];
  await vi.waitFor(async () => expect(await holders()).toEqual(pidsOf(killed, survivor)), patience);
  const depositing = depositAll();
  await vi.waitFor(() => expect(partner.received.length).toBeGreaterThan(killedAfter), patience);
  killed.kill('SIGKILL');
  expect(partner.received.length).toBeLessThan(depositCount);
  await vi.waitFor(async () => expect(await holders()).toEqual(pidsOf(survivor)), patience);
  await depositing;
  await expectPublished();
});

test('a worker without relays in its configuration runs the handlers, and holds no slot of a relay', async () => {
  const worker = fleet.startWithoutRelays();
  await vi.waitFor(
    async () => expect(await holders('notify-recipient-on-deposit')).toEqual(pidsOf(worker)),
    patience,
  );
  const relaying = fleet.start('relay');
  await depositAll();
  await expectPublished();
  expect(await holders()).toEqual(pidsOf(relaying));
  await vi.waitFor(async () => expect(await notificationCount()).toBe(depositCount), patience);
  relaying.kill('SIGKILL');
  await vi.waitFor(async () => expect(await holders()).toEqual(new Set()), patience);
  expect(await holders('notify-recipient-on-deposit')).toEqual(pidsOf(worker));
});

/** Deposits into wallets on both shards, each for a recipient who is to be notified. */
async function depositAll(): Promise<void> {
  const wallets = await Promise.all(
    Array.from({ length: walletCount }, (_unused, n) => fleet.openWallet(n % 2 === 0 ? 'DE' : 'MX')),
  );
  const byId = new Map(wallets.map((wallet) => [wallet.id.value, wallet]));
  let count = 0;
  await makeDeposits({
    ...load,
    walletIds: [...byId.keys()],
    countMax: depositCount,
    until: new AbortController().signal,
    deposit: (walletId) => fleet.deposit(byId.get(walletId)!, `recipient-${count++}`),
  });
}

async function expectPublished(): Promise<void> {
  const arrivals = new Arrivals();
  let takenCount = 0;
  const take = (): void => {
    for (const message of partner.received.slice(takenCount)) arrivals.add(message);
    takenCount = partner.received.length;
  };
  const timer = setInterval(take, patience.interval);
  await expectArrived(fleet, arrivals, patience.timeout).finally(() => clearInterval(timer));
}

/** The processes that hold slots of a handler now, over both databases. */
async function holders(handler: string = relayName): Promise<ReadonlySet<number>> {
  const { items } = await new DeliveryOperator(fleet.service.databases).leases();
  const processIds = items.flatMap(({ slots }) =>
    slots.flatMap((slot) => (slot.handler === handler ? (slot.processId ?? []) : [])),
  );
  // `<host>/<process>/<random>`
  return new Set(processIds.map((processId) => Number(processId.split('/')[1])));
}

function pidsOf(...processes: readonly ServiceProcess[]): ReadonlySet<number> {
  return new Set(processes.map(({ pid = 0 }) => pid));
}

async function notificationCount(): Promise<number> {
  const { global, mexico } = fleet.databases;
  const text = 'select recipient from notifications';
  const rows = await Promise.all([rowsOf(global, text), rowsOf(mexico, text)]);
  return rows.flat().length;
}
