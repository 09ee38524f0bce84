import { describe, expect, test } from 'vitest';

import { ManualWriter, errorOf } from '../../test/manual-writer.js';
import { global, openWallet } from '../../test/test-executor.js';
import { ConstraintViolationError, TransientStorageError } from '../storage/storage-errors.js';
import type { PendingCommit } from './pending-commit.js';

const constraint = new ConstraintViolationError(global, { constraint: 'a', table: 'b' });
const locked = new TransientStorageError(global, 'a lock was not obtained in time');
const [a, b] = [openWallet(), openWallet()];

/** A group of 12 plans that fails as a whole. */
async function lockedGroup(): Promise<{
  readonly writer: ManualWriter;
  readonly plans: readonly PendingCommit[];
}> {
  const writer = new ManualWriter();
  await writer.add('first', openWallet());
  const plans: PendingCommit[] = [];
  for (let index = 0; index < 12; index++) plans.push(await writer.add(`p${index}`, openWallet()));
  await writer.answer('first');
  await writer.sent[0]!.answer(locked);
  return { writer, plans };
}

describe('plans for too many locked models', () => {
  test('leave capacity for other plans, and are tried in turn', async () => {
    const { writer } = await lockedGroup();
    const waiting = ['p0', 'p1', 'p2', 'p3', 'p4'];
    expect(writer.open).toEqual([...waiting, 'p5', 'p6', 'p7']);
    expect(writer.patient).toEqual(waiting);
    for (const name of ['p5', 'p6', 'p7']) await writer.answer(name, locked);
    expect(writer.open).toEqual([...waiting, 'p8', 'p9', 'p10']);
    for (const name of ['p8', 'p9']) await writer.answer(name, locked);
    expect(writer.open).toEqual([...waiting, 'p10', 'p11', 'p5']);
    await writer.answer('p10');
    await writer.answer('p11');
    expect(writer.open).toEqual([...waiting, 'p5']);
    await writer.add('other', a);
    expect(writer.open).toEqual([...waiting, 'p5', 'other']);
    await writer.answer('other');
    for (const name of ['p5', 'p6', 'p7', 'p8', 'p9']) {
      expect(writer.open).toEqual([...waiting, name]);
      expect(writer.patient).toEqual(waiting);
      await writer.answer(name, locked);
    }
    await writer.answer('p2');
    expect(writer.open).toEqual(['p0', 'p1', 'p3', 'p4', 'p5', 'p6']);
    expect(writer.patient).toEqual(['p0', 'p1', 'p3', 'p4', 'p6']);
  });

  test('do not let a lone plan delay others for long', async () => {
    const { writer } = await lockedGroup();
    for (let index = 5; index < 12; index++) await writer.answer(`p${index}`);
    await writer.add('lone', a);
    expect(writer.patient).not.toContain('lone');
    await writer.add('other', b);
    await writer.answer('lone', locked);
    expect(writer.open.slice(5)).toEqual(['lone', 'other']);
  });

  test('do not affect a plan that violates a constraint', async () => {
    const { writer, plans } = await lockedGroup();
    await writer.answer('p6', constraint);
    for (const name of ['p5', 'p7']) await writer.answer(name);
    // It is written once more by itself: then the manager knows which of its rows was refused.
    await writer.answer('p6', constraint);
    expect(await errorOf(plans[6]!)).toBe(constraint);
  });

  test('let a plan that fails, but is not at fault, commit separately', async () => {
    const { writer, plans } = await lockedGroup();
    await writer.answer('p6', new Error('the group was refused'));
    for (const name of ['p5', 'p7']) await writer.answer(name);
    const waiting = ['p0', 'p1', 'p2', 'p3', 'p4'];
    expect(writer.commits).toEqual([...waiting, 'p6']);
    const failure = new Error('the row was refused');
    await writer.answer('p6', failure);
    expect(await errorOf(plans[6]!)).toBe(failure);
  });

  test('let a plan that fits no group commit separately', async () => {
    const { writer, plans } = await lockedGroup();
    for (let index = 5; index < 12; index++) if (index !== 6) await writer.answer(`p${index}`);
    await writer.answer('p6', ['single']);
    const waiting = ['p0', 'p1', 'p2', 'p3', 'p4'];
    expect(writer.open).toEqual([...waiting, 'p6']);
    expect(writer.patient).toEqual(waiting);
    expect(writer.commits).toEqual([...waiting, 'p6']);
    await writer.answer('p6', locked);
    expect(writer.commits).toEqual([...waiting, 'p6']);
    await writer.answer('p0');
    await writer.answer('p6', locked);
    expect(writer.patient).toEqual(['p1', 'p2', 'p3', 'p4', 'p6']);
    await writer.answer('p6', constraint);
    expect(await errorOf(plans[6]!)).toBe(constraint);
  });

  test('leave capacity for unlocked plans that must commit separately', async () => {
    const { writer } = await lockedGroup();
    for (let index = 6; index < 12; index++) await writer.answer(`p${index}`);
    // This plan takes the last place for plans that are known to wait for a lock.
    await writer.answer('p5', locked);
    await writer.add('alone-1', a);
    await writer.add('alone-2', b);
    await writer.answer('alone-1', ['single']);
    await writer.answer('alone-2', ['single']);
    expect(writer.commits.slice(5)).toEqual(['alone-1', 'alone-2']);
    await writer.answer('alone-1');
    await writer.answer('alone-2');
    expect(writer.open).toEqual(['p0', 'p1', 'p2', 'p3', 'p4', 'p5']);
  });

  test('are tried in the order in which they began to wait', async () => {
    const { writer } = await lockedGroup();
    for (const name of ['p5', 'p6', 'p7']) await writer.answer(name, locked);
    for (const name of ['p8', 'p9', 'p10', 'p11']) await writer.answer(name);
    const tried: string[] = [];
    for (let round = 0; round < 4; round++) {
      await writer.add(`newer${round}`, openWallet());
      await writer.answer(`newer${round}`, locked);
      const [turn] = writer.open.slice(5);
      tried.push(turn!);
      await writer.answer(turn!, locked);
    }
    expect(tried).toEqual(['p5', 'p6', 'p7', 'newer0']);
  });

  test('are tried before the plans of a group that failed later', async () => {
    const { writer } = await lockedGroup();
    await writer.add('later', openWallet());
    for (const name of ['n0', 'n1']) (await writer.add(name, openWallet())).queuedMs = 1;
    await writer.answer('later');
    await writer.answer('n0+n1', locked);
    const tried: string[] = [];
    for (const name of ['p5', 'p6', 'p7', 'p8', 'p9']) {
      await writer.answer(name);
      tried.push(writer.open.at(-1)!);
    }
    expect(tried).toEqual(['p8', 'p9', 'p10', 'p11', 'n0']);
  });

  test('do not forever hold back a plan that fails for another reason', async () => {
    const { writer, plans } = await lockedGroup();
    for (let index = 6; index < 12; index++) await writer.answer(`p${index}`);
    let count = 0;
    for (; writer.open.includes('p5') && count < 100; count++) await writer.answer('p5', locked);
    expect(await errorOf(plans[5]!)).toBe(locked);
    // There are fifty brief tries, and the one after which the plan fails.
    expect(count).toBe(51);
  });
});

describe('plans of handlers for models that another session has locked', () => {
  const refused = { code: 'shard-unavailable', kind: 'locked' };
  const waiting = ['p0', 'p1', 'p2', 'p3', 'p4'];

  /** A writer on which the maximum number of writes are already waiting for locks. */
  async function fullWriter(): Promise<ManualWriter> {
    const { writer } = await lockedGroup();
    for (let index = 5; index < 12; index++) await writer.answer(`p${index}`);
    expect(writer.open).toEqual(waiting);
    return writer;
  }

  test.each(['in the database', 'in turns'])(
    'are limited in number, even behind each other: %s',
    async (how) => {
      const writer = how === 'in turns' ? await fullWriter() : new ManualWriter();
      const before = writer.open.length;
      const plans: PendingCommit[] = [];
      for (let index = 0; index < 10; index++) plans.push(await writer.addOfHandler(`h${index}`, a));
      const client = await writer.add('client', a);
      const other = await writer.addOfHandler('other', b);
      await (how === 'in turns' ? writer.answer('h0', locked) : writer.lockOut('h0'));
      const states = plans.map(({ state }) => state);
      expect(states).toEqual(['sent', ...Array<string>(7).fill('queued'), 'aborted', 'aborted']);
      expect(await errorOf(plans[8]!)).toMatchObject(refused);
      // The client's plan depends on the last plan of a handler.
      expect([client.state, other.isPending]).toEqual(['aborted', true]);
      await expect(writer.addOfHandler('late', a)).rejects.toMatchObject(refused);
      await writer.clock.pass(50);
      await writer.answer('other');
      expect(writer.open.slice(before)).toEqual(['h0']);
      await writer.answer('h0');
      expect(writer.open.slice(before)).toEqual(['h1+h2+h3+h4+h5+h6+h7']);
    },
  );

  test('wait behind each other while they are few', async () => {
    const writer = new ManualWriter();
    await writer.addOfHandler('h0', a);
    await writer.lockOut('h0');
    await writer.clock.pass(50);
    const plans: PendingCommit[] = [];
    for (let index = 1; index < 8; index++) plans.push(await writer.addOfHandler(`h${index}`, a));
    expect(plans.map(({ state }) => state)).toEqual(Array<string>(7).fill('queued'));
    await expect(writer.addOfHandler('h8', a)).rejects.toMatchObject(refused);
  });

  test('are limited in number, even behind several writes', async () => {
    const writer = new ManualWriter();
    for (const [name, wallet] of Object.entries({ a, b })) {
      await writer.addOfHandler(name, wallet);
      await writer.lockOut(name);
      await writer.clock.pass(50);
      for (let index = 0; index < 3; index++) await writer.addOfHandler(`${name}${index}`, wallet);
    }
    await expect(writer.addOfHandler('one more', a)).rejects.toMatchObject(refused);
    await expect(writer.addOfHandler('another', b)).rejects.toMatchObject(refused);
    await writer.addOfHandler('other', openWallet());
    expect(writer.open).toEqual(['a', 'b', 'other']);
  });

  test('release what waited behind those that are too many', async () => {
    const writer = new ManualWriter();
    await writer.addOfHandler('h0', a);
    await writer.clock.pass(50);
    for (let index = 1; index < 8; index++) await writer.addOfHandler(`h${index}`, a);
    writer.staged.hide(await writer.addOfHandler('h8', a, b));
    await writer.add('client', b);
    expect(writer.open).toEqual(['h0']);
    await writer.lockOut('h0');
    expect(writer.open).toEqual(['h0', 'client']);
  });

  test("take no capacity from a client's plan that waits", async () => {
    const writer = await fullWriter();
    for (let index = 0; index < 8; index++) {
      await writer.addOfHandler(`h${index}`, openWallet());
      await writer.answer(`h${index}`, locked);
    }
    const client = await writer.add('client', a);
    await writer.answer('client', locked);
    expect(client.state).toBe('again');
  });

  test('do not count as locked when they are written', async () => {
    const writer = new ManualWriter();
    await writer.addOfHandler('written', b);
    const [sent] = writer.sent;
    await writer.answer('written');
    await writer.addOfHandler('h0', a);
    await writer.lockOut('h0');
    const plans: PendingCommit[] = [];
    for (let index = 1; index < 8; index++) plans.push(await writer.addOfHandler(`h${index}`, a));
    // That the plan `written` waited for a lock is reported late.
    await sent!.lockOut();
    expect(plans.map(({ state }) => state)).toEqual(Array<string>(7).fill('queued'));
  });

  test('are not abandoned while the database may be writing them', async () => {
    const writer = new ManualWriter();
    for (let index = 0; index < 4; index++) {
      await writer.addOfHandler(`h${index}`, openWallet());
      await writer.lockOut(`h${index}`);
      await writer.clock.pass(50);
    }
    await writer.add('client', openWallet());
    await writer.clock.pass(50);
    for (let index = 4; index < 8; index++) {
      await writer.addOfHandler(`h${index}`, openWallet());
      await writer.answer(`h${index}`, locked);
    }
    for (let index = 0; index < 3; index++) {
      await writer.add(`slow${index}`, openWallet());
      await writer.clock.pass(50);
    }
    const last = await writer.addOfHandler('last', openWallet());
    await writer.answer('client');
    expect(writer.patient).toContain('last');
    await writer.lockOut('last');
    expect(last.state).toBe('sent');
    await writer.answer('last');
    expect(last.state).toBe('written');
  });

  test('are limited in number', async () => {
    const writer = await fullWriter();
    const plans: PendingCommit[] = [];
    for (let index = 0; index < 10; index++) {
      plans.push(await writer.addOfHandler(`h${index}`, openWallet()));
      await writer.answer(`h${index}`, locked);
    }
    const states = plans.map(({ state }) => state);
    expect(states).toEqual(['sent', ...Array<string>(7).fill('again'), 'aborted', 'aborted']);
    expect(await errorOf(plans[9]!)).toMatchObject(refused);
  });

  test("do not wait behind a client's plan that has waited long", async () => {
    const writer = await fullWriter();
    await writer.add('client', a);
    await writer.answer('client', locked);
    const early = await writer.addOfHandler('early', a);
    for (let tick = 0; tick < 2; tick++) {
      expect(early.state).toBe('queued');
      await writer.clock.wake();
      await writer.answer('client', locked);
    }
    expect(await errorOf(early)).toMatchObject(refused);
    await expect(writer.addOfHandler('late', a)).rejects.toMatchObject(refused);
    await writer.answer('client');
    await writer.addOfHandler('later', a);
    expect(writer.open).toEqual([...waiting, 'later']);
  });
});
