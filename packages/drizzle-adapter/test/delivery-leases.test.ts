import type { DeliveryStore } from '@framework/core';
import { describe, expect, it, vi } from 'vitest';
import { allSlots, beginning, openStore } from './fixtures/delivery-store.js';
import { query } from './fixtures/query.js';

const leaseMs = 60_000;
const handler = { name: 'notify', aliases: [], startFrom: 'beginning' } as const;

describe('slots', () => {
  it('all belong to a process that is alone', async () => {
    const { store } = await openStore();
    const leases = await store.leases.renew('one', leaseMs);
    expect(leases.map(({ slot }) => slot)).toEqual(allSlots);
    expect(leases.some(({ abandoned }) => abandoned)).toBe(false);
    expect(await store.leases.renew('one', leaseMs)).toEqual(leases);
  });

  it('are shared fairly when further processes come, and taken over when they go', async () => {
    const { store } = await openStore();
    await store.leases.renew('one', leaseMs);
    expect(await store.leases.renew('two', leaseMs)).toEqual([]);
    expect(await store.leases.renew('one', leaseMs)).toHaveLength(8);
    expect(await store.leases.renew('two', leaseMs)).toHaveLength(8);
    expect(slotsOf(await store.leases.list())).toEqual(allSlots.map((slot) => (slot < 8 ? 'one' : 'two')));

    await store.leases.release('one');
    const taken = await store.leases.renew('two', leaseMs);
    expect(taken).toHaveLength(16);
    expect(taken.some(({ abandoned }) => abandoned)).toBe(false);
  });

  it('of a process that vanished are taken over as abandoned, once its lease is over', async () => {
    const { store } = await openStore();
    const before = await store.leases.renew('one', 50);
    const after = await vi.waitFor(async () => {
      const leases = await store.leases.renew('two', leaseMs);
      expect(leases).toHaveLength(16);
      return leases;
    });
    expect(after.every(({ abandoned }) => abandoned)).toBe(true);
    expect(after.map(({ token }) => token)).not.toEqual(before.map(({ token }) => token));
    expect((await store.leases.renew('two', leaseMs)).some(({ abandoned }) => abandoned)).toBe(false);
  });

  it('are never held by two processes when many come at once', async () => {
    const { store } = await openStore();
    const names = Array.from({ length: 10 }, (_unused, index) => `process-${index}`);
    await Promise.all(names.map((name) => store.leases.renew(name, leaseMs)));
    await Promise.all(names.map((name) => store.leases.renew(name, leaseMs)));
    const held = (await Promise.all(names.map((name) => store.leases.renew(name, leaseMs)))).flat();
    expect(held.map(({ slot }) => slot).toSorted((one, other) => one - other)).toEqual(allSlots);
  });
});

describe('cursors', () => {
  it('are made once, at the start that a new handler asks for', async () => {
    const { store } = await openStore();
    const late = { name: 'late', aliases: [], startFrom: 'now' } as const;
    await Promise.all(Array.from({ length: 5 }, () => store.cursors.register([handler, late])));
    const cursors = await store.cursors.load(allSlots);
    expect(cursors).toHaveLength(32);
    for (const { handler: name, cursor } of cursors) expect(cursor === beginning).toBe(name === 'notify');
  });

  it('are saved under the lease of their slot only', async () => {
    const { store } = await openStore();
    await store.cursors.register([handler]);
    const [held, lost] = await store.leases.renew('one', leaseMs);
    const move = { handler: 'notify', cursor: '5:5:' };
    const moves = [
      { ...move, slot: held!.slot, token: held!.token },
      { ...move, slot: lost!.slot, token: '0' },
    ];
    expect(await store.cursors.save(moves)).toEqual([lost!.slot]);
    const cursors = new Map((await store.cursors.load(allSlots)).map(({ slot, cursor }) => [slot, cursor]));
    expect(cursors.get(held!.slot)).toBe('5:5:');
    expect(cursors.get(lost!.slot)).toBe(beginning);
  });

  it('follow a handler that was renamed, and lose nothing', async () => {
    const { store } = await openStore();
    await store.cursors.register([handler]);
    await moveAll(store, '7:7:');
    await store.cursors.register([{ name: 'tell', aliases: ['inform', 'notify'], startFrom: 'now' }]);
    const cursors = await store.cursors.load(allSlots);
    expect(new Set(cursors.map(({ handler: name, cursor }) => `${name} ${cursor}`))).toEqual(
      new Set(['tell 7:7:']),
    );
  });

  it('stand at a time that a new handler asks for', async () => {
    const { store, url } = await openStore();
    const time = new Date('2020-01-01');
    await store.cursors.register([{ name: 'since', aliases: [], startFrom: { time } }]);
    const [{ xmax } = { xmax: '' }] = await query<{ xmax: string }>(
      url,
      'select pg_snapshot_xmax(pg_current_snapshot())::text as xmax',
    );
    for (const { cursor } of await store.cursors.load(allSlots))
      expect(Number(cursor.split(':')[1])).toBeLessThanOrEqual(Number(xmax));
  });
});

async function moveAll(store: DeliveryStore, cursor: string): Promise<void> {
  const leases = await store.leases.renew('one', leaseMs);
  await store.cursors.save(leases.map(({ slot, token }) => ({ handler: 'notify', slot, token, cursor })));
}

function slotsOf(
  leases: Awaited<ReturnType<DeliveryStore['leases']['list']>>,
): readonly (string | undefined)[] {
  return leases.map(({ processId }) => processId);
}
