import { DeliveryOperator } from '@framework/events';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

import type { Wallet } from '../../src/wallet/wallet.js';
import type { ServiceProcess } from '../service-process.js';
import { type Fault, firstVersions } from './deliveries.js';
import { Fleet } from './fleet.js';

const attemptsMax = 3;
const delivery = {
  'poll-max-ms': 100,
  retry: { 'attempts-max': attemptsMax, 'backoff-base-ms': 20, 'backoff-max-ms': 100 },
};
const patience = { timeout: 60_000, interval: 50 };
const walletCount = 10;
/** The version of the wallets' second deposit. */
const poisonVersion = 3;
const versions = [1, 2, 3, 4, 5, 6];
const handler = 'record-deposits';
/** The log's fields for a dead letter. */
const gaveUp = {
  level: 50,
  handler,
  attempt: attemptsMax,
  remedy: expect.stringMatching(/later events of the model wait behind it.*replay or skip it/) as string,
  msg: 'a handler failed for the last time: the event is a dead letter',
};

let fleet: Fleet;
let operator: DeliveryOperator;

/** A fleet for the tests of one `describe` block, after which it is stopped. */
function withFleet(own: object = {}): void {
  beforeAll(async () => {
    fleet = await Fleet.create({ ...delivery, ...own });
    operator = new DeliveryOperator(fleet.service.databases);
  });
  afterAll(() => fleet.end());
}

describe('an event that fails at every attempt', () => {
  // Leases are long, so that none is lost on a busy machine, which would cause repeats.
  withFleet({ 'lease-ms': 60_000 });

  test('stops only its own wallet until it is replayed', async () => {
    const worker = fleet.startRecording();
    const { poisoned, others } = await depositAround('throws');
    await vi.waitFor(async () => expect(await deadAttempts()).toEqual([attemptsMax]), patience);
    await everythingArrived(others);

    expect(await attempts(poisoned)).toEqual([1, 2, 3]);
    expect(await waiting(poisoned)).toEqual([poisonVersion]);
    // One line is logged for each attempt, and none for the events that wait behind it, or for other wallets.
    const retried = { level: 40, handler, counted: true, msg: 'a handler failed and will be retried' };
    expect(told([worker], poisoned)).toMatchObject([
      { ...retried, attempt: 1 },
      { ...retried, attempt: 2 },
      gaveUp,
    ]);
    expect(others.flatMap((other) => told([worker], other))).toEqual([]);
    expect(await operator.replay({ handler }, { dryRun: true })).toBe(1);
    expect(await deadAttempts()).toEqual([attemptsMax]);

    await fleet.deliveries.fix();
    expect(await operator.replay({ handler })).toBe(1);
    await everythingArrived([poisoned]);
    expect(await attempts(poisoned)).toEqual([1, 2, 3, 1]);
    expect(await received(poisoned)).toEqual([1, 2, 3, 3, 3, 3, 4, 5, 6]);
    expect(await waiting(poisoned)).toEqual([]);
    worker.kill('SIGTERM');
    expect(await worker.exitCode()).toBe(0);
  });
});

describe('an event that kills its process', () => {
  withFleet();

  test('becomes a dead letter after its attempts, and all other events arrive', async () => {
    // Before delivery begins: on a slow machine, nothing might be running beside the poison event.
    const { poisoned, others } = await depositAround('kills');
    const workers = [
      new Restarted(() => fleet.startRecording()),
      new Restarted(() => fleet.startRecording()),
    ];
    await vi.waitFor(async () => expect(await deadAttempts()).toEqual([attemptsMax]), patience);
    await everythingArrived(others);

    // A death does not count while other events are being tried as well: at the first delivery, when the event is tried as one of
    // several suspects, and at times on a slow machine.
    const made = await attempts(poisoned);
    expect(made.slice(-attemptsMax)).toEqual([1, 2, 3]);
    const uncounted = made.slice(0, -attemptsMax);
    expect(uncounted.length).toBeGreaterThanOrEqual(2);
    expect(new Set(uncounted)).toEqual(new Set([1]));
    expect(workers.reduce((sum, { deathCount }) => sum + deathCount, 0)).toBe(made.length);
    const processes = workers.flatMap(({ started }) => started);
    expect(told(processes, poisoned)).toContainEqual(
      expect.objectContaining({
        ...gaveUp,
        reason: expect.stringContaining(`The process ended, or its event loop was blocked`) as string,
      }),
    );
    // The last process to take over may deliver earlier events again, because no cursor has passed them.
    await vi.waitFor(async () => expect(await waiting(poisoned)).toEqual([poisonVersion]), patience);

    await fleet.deliveries.fix();
    expect(await operator.replay({ handler })).toBe(1);
    await everythingArrived([poisoned]);
    expect(
      firstVersions(await fleet.deliveries.of(handler, poisoned.id.value)).get(poisoned.id.value),
    ).toEqual(versions);
    expect(await waiting(poisoned)).toEqual([]);
  });
});

/** A process that is restarted whenever it ends. */
class Restarted {
  /** All processes so far; the last one is running. */
  readonly started: ServiceProcess[] = [];

  constructor(start: () => ServiceProcess) {
    void this.#watch(start);
  }

  get deathCount(): number {
    return this.started.length - 1;
  }

  async #watch(start: () => ServiceProcess): Promise<void> {
    while (!fleet.ended) {
      const running = start();
      this.started.push(running);
      await running.exitCode();
    }
  }
}

/** What the logs of processes say about the events of a wallet. */
function told(processes: readonly ServiceProcess[], { id }: Wallet): readonly unknown[] {
  const lines = processes.flatMap(({ stderr }) => stderr.split('\n'));
  return lines.filter((line) => line.includes(id.value)).map((line): unknown => JSON.parse(line));
}

/** Opens wallets on both shards and deposits into each; one deposit of one wallet is a poison event. */
async function depositAround(fault: Fault) {
  const [poisoned, ...others] = await Promise.all(
    Array.from({ length: walletCount }, (_unused, n) => fleet.openWallet(n % 2 === 0 ? 'DE' : 'MX')),
  );
  if (poisoned === undefined) throw new Error('There is no wallet');
  await fleet.deliveries.break(poisoned.id.value, poisonVersion, fault);
  await Promise.all([poisoned, ...others].map(deposits));
  return { poisoned, others };
}

async function deposits(wallet: Wallet): Promise<void> {
  for (const _version of versions.slice(1)) await fleet.deposit(wallet);
}

/** Waits until each event of the wallets has been handled, with the first deliveries in the order of versions. */
async function everythingArrived(wallets: readonly Wallet[]): Promise<void> {
  await vi.waitFor(async () => {
    for (const name of [handler, 'record-everything']) {
      const first = firstVersions(await fleet.deliveries.of(name));
      for (const { id } of wallets) expect(first.get(id.value)).toEqual(versions);
    }
    for (const wallet of wallets) expect(await waiting(wallet)).toEqual([]);
  }, patience);
}

async function received({ id }: Wallet): Promise<readonly number[]> {
  return (await fleet.deliveries.of(handler, id.value)).map(({ version }) => version);
}

/** The attempts at the poison event. */
async function attempts({ id }: Wallet): Promise<readonly number[]> {
  const own = await fleet.deliveries.of(handler, id.value);
  return own.filter(({ version }) => version === poisonVersion).map(({ attempt }) => attempt);
}

async function deadAttempts(): Promise<readonly number[]> {
  return (await operator.findBlocked({ handler, dead: true })).items.map((row) => row.attempts);
}

/** The version of a wallet at which its events wait for the handler, as a list; empty if none waits. */
async function waiting({ id }: Wallet): Promise<readonly number[]> {
  const { items } = await operator.findBlocked({ handler, modelId: id.value });
  return items.map(({ event }) => event.modelVersion).toSorted((one, other) => one - other);
}
