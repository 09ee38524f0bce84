import type { LeaseRenewal } from '@framework/core';
import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';
import { defaultDeliverySettings } from '../src/index.js';
import { LeaseKeeper } from '../src/lease/lease-keeper.js';
import { gate } from './delivery-bench.js';

test('a keeper that stops gives its slots back behind a renewal that is under way', async () => {
  const { opened, open } = gate();
  const done: string[] = [];
  const keeper = new LeaseKeeper({
    context: {
      settings: defaultDeliverySettings,
      clock: new VirtualClock(),
      random: () => 1,
      onError: (error) => done.push(String(error)),
      onAttemptFailed: () => undefined,
      stopping: new AbortController().signal,
      ended: new AbortController().signal,
    },
    leases: {
      renew: async (): Promise<LeaseRenewal> => {
        await opened;
        done.push('renewed');
        return { leases: [{ handler: 'one', slot: 0, token: '1', abandoned: false }], alone: true };
      },
      release: async () => void done.push('released'),
    },
    processId: 'one',
    onRenewed: () => done.push('told'),
  });
  void keeper.run(['one']);
  const stopped = keeper.stop();
  open();
  await stopped;
  expect(done).toEqual(['renewed', 'released']);
  expect(keeper.slots).toEqual([]);
});

test('a keeper counts a lease from the question, because the database may have answered at once', async () => {
  const clock = new VirtualClock();
  let renewalCount = 0;
  const keeper = new LeaseKeeper({
    context: {
      settings: defaultDeliverySettings,
      clock,
      random: () => 1,
      onError: () => undefined,
      onAttemptFailed: () => undefined,
      stopping: new AbortController().signal,
      ended: new AbortController().signal,
    },
    leases: {
      renew: async (): Promise<LeaseRenewal> => {
        if (renewalCount++ > 0) return new Promise(() => undefined);
        await clock.sleep(5_000);
        return { leases: [{ handler: 'one', slot: 0, token: '1', abandoned: false }], alone: true };
      },
      release: async () => undefined,
    },
    processId: 'one',
    onRenewed: () => undefined,
  });
  void keeper.run(['one']);
  await clock.advance(5_001);
  expect(keeper.slots).toHaveLength(1);
  await clock.advance(defaultDeliverySettings.leaseMs - 5_000);
  expect(keeper.slots).toEqual([]);
});
