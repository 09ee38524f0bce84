import { describe, expect, test, vi } from 'vitest';

import { ManualWriter, errorOf } from '../../test/manual-writer.js';
import { global, openWallet } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import { CommitOutcomeUnknownError, ConstraintViolationError } from '../storage/storage-errors.js';
import { PendingCommit } from './pending-commit.js';

const constraint = new ConstraintViolationError(global, { constraint: 'a', table: 'b' });
const [a, b, c] = [openWallet(), openWallet(), openWallet()];

describe('a plan that waits behind a locked model', () => {
  test('is refused if it was not sent in time, while the sent one continues', async () => {
    const writer = new ManualWriter();
    const sent = await writer.add('sent', a);
    const waiting = await writer.add('waiting', a);
    await writer.clock.pass(50);
    await writer.passWait();
    expect(await errorOf(waiting)).toMatchObject({
      code: 'shard-unavailable',
      shard: global,
      kind: 'locked',
      reason: expect.stringMatching(/within 5000 ms/) as string,
    });
    expect(waiting.state).toBe('aborted');
    expect(writer.open).toEqual(['sent']);
    await writer.answer('sent');
    expect(sent.state).toBe('written');
    expect(writer.open).toEqual([]);
  });

  test('is not refused before its time', async () => {
    const writer = new ManualWriter();
    await writer.add('sent', a);
    const waiting = await writer.add('waiting', a);
    for (let tick = 0; tick < 4; tick++) await writer.clock.wake();
    expect(waiting.state).toBe('queued');
    await writer.answer('sent');
    expect(writer.open).toEqual(['waiting']);
  });

  test('is refused sooner if it is from a handler and the lock is known', async () => {
    const writer = new ManualWriter({ queueWaitMs: 4_000 });
    await writer.add('locked', a, b);
    const client = await writer.add('client', a);
    const handler = await writer.addOfHandler('handler', b);
    await writer.clock.wake();
    await writer.clock.wake();
    expect(handler.state).toBe('queued');
    await writer.clock.pass(50);
    await writer.clock.wake();
    expect([client, handler].map(({ state }) => state)).toEqual(['queued', 'aborted']);
    expect(await errorOf(handler)).toMatchObject({
      code: 'shard-unavailable',
      kind: 'locked',
      reason: expect.stringMatching(/within 1000 ms/) as string,
    });
  });

  test('is refused at once if from a handler when another one has waited long', async () => {
    const writer = new ManualWriter();
    await writer.add('locked', a);
    await writer.clock.pass(50);
    const first = await writer.addOfHandler('first', a);
    await writer.clock.wake();
    await writer.clock.wake();
    expect(first.state).toBe('aborted');
    await expect(writer.addOfHandler('next', a)).rejects.toMatchObject({
      code: 'shard-unavailable',
      kind: 'locked',
    });
    const client = await writer.add('client', a);
    await writer.addOfHandler('other', b);
    expect([client.state, writer.open]).toEqual(['queued', ['locked', 'other']]);
    await writer.answer('locked');
    await writer.answer('other');
    await writer.addOfHandler('later', a);
    expect(writer.open).toEqual(['later']);
  });

  test('is refused at once if from a handler, even if it changes other models', async () => {
    const writer = new ManualWriter();
    await writer.add('locked', a, b);
    await writer.clock.pass(50);
    await writer.addOfHandler('first', b, c);
    await writer.clock.wake();
    await writer.clock.wake();
    await expect(writer.addOfHandler('next', c, b)).rejects.toMatchObject({ kind: 'locked' });
  });

  test('is refused even after it was sent in a group that was not written', async () => {
    const writer = new ManualWriter();
    await writer.add('locked', a);
    await writer.clock.pass(50);
    await writer.add('first', openWallet());
    for (let index = 0; index < 12; index++) await writer.add(`p${index}`, openWallet());
    const last = await writer.add('last', openWallet());
    await writer.answer('first');
    await writer.answer(writer.open.at(-1)!, constraint);
    expect(writer.open).not.toContain('last');
    await writer.passWait();
    expect(await errorOf(last)).toMatchObject({ code: 'shard-unavailable' });
    expect(writer.open).not.toContain('last');
  });

  test('is refused in time even if all plans arrived at the same moment', async () => {
    const failed = new ManualWriter();
    const plans = Array.from({ length: 12 }, (_plan, index) => failed.add(`p${index}`, openWallet()));
    const last = (await Promise.all(plans)).at(-1)!;
    await failed.answer(failed.open[0] ?? '', constraint);
    expect(failed.open).not.toContain('p11');
    await failed.passWait();
    expect(last.state).toBe('aborted');
    expect(await errorOf(last)).toMatchObject({ code: 'shard-unavailable' });

    const single = new ManualWriter({ plansMax: 1 });
    const [, second] = await Promise.all([single.add('locked', a), single.add('second', a)]);
    await single.passWait();
    expect(single.open).toEqual(['locked']);
    expect(second.state).toBe('aborted');
    // The model is not known to be locked.
    expect(await errorOf(second)).toMatchObject({
      code: 'shard-unavailable',
      kind: undefined,
      reason: 'the plan was not sent within 5000 ms',
    });
  });

  test('releases what waits behind it when it is refused', async () => {
    const writer = new ManualWriter();
    await writer.add('locked', a);
    await writer.clock.pass(50);
    const waiting = await writer.add('waiting', a, b);
    writer.staged.hide(waiting);
    await writer.clock.wake();
    await writer.add('behind', b);
    for (let tick = 0; tick < 4; tick++) await writer.clock.wake();
    expect(waiting.state).toBe('aborted');
    expect(writer.open).toEqual(['locked', 'behind']);
  });

  test('lets what depends on it run again', async () => {
    const writer = new ManualWriter();
    await writer.add('sent', a);
    const waiting = await writer.add('waiting', a);
    await writer.clock.wake();
    await writer.clock.wake();
    const later = await writer.add('later', a);
    for (let tick = 0; tick < 3; tick++) await writer.clock.wake();
    expect(await errorOf(waiting)).toMatchObject({ code: 'shard-unavailable' });
    expect(await errorOf(later)).toMatchObject({ code: 'stale-record' });
  });

  test('takes no capacity from plans of other models', async () => {
    const writer = new ManualWriter({ queueMax: 3 });
    await writer.add('locked', a);
    await writer.clock.pass(50);
    await writer.add('awaited', b);
    for (let index = 0; index < 3; index++) await writer.add(`waiting${index}`, a, openWallet());
    await expect(writer.add('one more', a)).rejects.toMatchObject({ code: 'shard-unavailable' });
    const others: PendingCommit[] = [];
    for (let index = 0; index < 3; index++) others.push(await writer.add(`other${index}`, openWallet()));
    await expect(writer.add('other3', openWallet())).rejects.toMatchObject({ code: 'shard-unavailable' });
    await writer.answer('awaited');
    expect(writer.open).toEqual(['locked', 'other0+other1+other2']);
    await writer.add('another', c);
    await writer.answer('other0+other1+other2');
    expect(writer.open).toEqual(['locked', 'another']);
  });

  test('takes no capacity even if it came before the lock was known', async () => {
    const writer = new ManualWriter({ queueMax: 2 });
    await writer.add('locked', a);
    for (let index = 0; index < 2; index++) await writer.add(`waiting${index}`, a);
    await writer.clock.pass(50);
    await writer.add('other', b);
    expect(writer.open).toEqual(['locked', 'other']);
  });

  test('keeps a timer only while it waits', async () => {
    const writer = new ManualWriter();
    await writer.add('first', a);
    await writer.answer('first');
    await writer.add('second', b);
    expect(writer.clock.sleeps).toBe(0);
    await writer.add('third', b);
    expect(writer.clock.sleeps).toBe(1);
    await writer.answer('second');
    await writer.answer('third');
    await writer.clock.wake();
    expect(writer.clock.sleeps).toBe(1);
  });
});

describe('plans that expect the same version', () => {
  test('are refused as stale when one of them is written, without being sent', async () => {
    const writer = new ManualWriter();
    const first = await writer.add('first', a);
    writer.staged.hide(first);
    const same = await writer.add('same', a, b);
    const continued = await writer.add('continued', b);
    const other = await writer.add('other', c);
    await writer.answer('first');
    expect(writer.open).toEqual(['other']);
    expect(await errorOf(same)).toMatchObject({ code: 'stale-record', id: a.id.value, expectedVersion: 1 });
    expect(await errorOf(continued)).toMatchObject({ code: 'stale-record', id: b.id.value });
    expect(other.state).toBe('sent');
  });

  test('are sent one after the other while none is written', async () => {
    const writer = new ManualWriter();
    const first = await writer.add('first', a);
    writer.staged.hide(first);
    await writer.add('same', a);
    await writer.answer('first', constraint);
    expect(writer.open).toEqual(['same']);
  });
});

describe('a plan whose idempotency key is taken', () => {
  test('aborts those that depend on it, which run again', async () => {
    const writer = new ManualWriter();
    const taken = await writer.addOfHandler('taken', a);
    const built = await writer.add('built', a);
    await writer.answer('taken', ['key-taken']);
    expect(await taken.outcome).toBe('key-taken');
    expect(await errorOf(built)).toMatchObject({ code: 'stale-record', id: a.id.value });
    expect(writer.open).toEqual([]);
  });
});

describe('a write that takes a long time', () => {
  test('does not hold up plans of other models, only those of its own', async () => {
    const writer = new ManualWriter();
    await writer.add('slow', a);
    await writer.add('other', b);
    await writer.add('same', a);
    expect(writer.open).toEqual(['slow']);
    await writer.clock.pass(50);
    expect(writer.open).toEqual(['slow', 'other']);
    await writer.answer('other');
    expect(writer.open).toEqual(['slow']);
    await writer.answer('slow');
    expect(writer.open).toEqual(['same']);
  });

  test('makes no room for another write when it ends while a later one is awaited', async () => {
    const writer = new ManualWriter();
    await writer.add('slow', a);
    await writer.clock.pass(50);
    await writer.add('awaited', b);
    await writer.add('next', c);
    await writer.answer('slow');
    expect(writer.open).toEqual(['awaited']);
    await writer.answer('awaited');
    expect(writer.open).toEqual(['next']);
  });

  test('counts the plans behind it separately, even if it was set aside late', async () => {
    const writer = new ManualWriter({ queueMax: 2 });
    for (let index = 0; index < 8; index++) {
      await writer.add(`p${index}`, openWallet());
      await writer.clock.pass(50);
    }
    await writer.add('slow', a);
    await writer.clock.pass(50);
    await writer.answer('p3');
    await writer.add('awaited', b);
    for (const name of ['behind0', 'behind1']) await writer.add(name, a);
    for (const name of ['other0', 'other1']) await writer.add(name, openWallet());
    await writer.answer('awaited');
    expect(writer.open.at(-1)).toBe('other0+other1');
  });

  test('leaves some capacity for the others', async () => {
    const writer = new ManualWriter();
    for (let index = 0; index < 10; index++) {
      await writer.add(`p${index}`, openWallet());
      await writer.clock.pass(50);
    }
    expect(writer.open).toHaveLength(9);
    await writer.answer('p3');
    expect(writer.open).toHaveLength(9);
    expect(writer.open.at(-1)).toBe('p9');
  });

  test('is awaited while capacity is lacking, even if another write has its outcome meanwhile', async () => {
    const writer = new ManualWriter();
    await writer.add('unknown', openWallet());
    await writer.answer('unknown', new CommitOutcomeUnknownError(global, 'unknown'));
    for (let index = 0; index < 9; index++) {
      await writer.add(`p${index}`, openWallet());
      await writer.clock.pass(50);
    }
    await writer.add('next', a);
    await writer.asked[0]!.answer(true);
    expect(writer.open).not.toContain('next');
    await writer.answer('p3');
    expect(writer.open.at(-1)).toBe('next');
  });
});

describe('a write whose outcome only the log knows', () => {
  test('is waited for by plans of its models that do not depend on it', async () => {
    const writer = new ManualWriter();
    const first = await writer.add('first', a);
    await writer.answer('first', new CommitOutcomeUnknownError(global, 'first'));
    writer.staged.hide(first);
    await writer.add('blind', a);
    expect(writer.open).toEqual([]);
    await writer.asked[0]!.answer(false);
    expect(writer.open).toEqual(['blind']);
  });

  test("delays handlers' plans behind it no longer than a lock does", async () => {
    const writer = new ManualWriter();
    await writer.add('first', a);
    await writer.answer('first', new CommitOutcomeUnknownError(global, 'first'));
    const handler = await writer.addOfHandler('handler', a);
    const client = await writer.add('client', openWallet());
    await writer.clock.wake();
    await writer.clock.wake();
    expect(await errorOf(handler)).toMatchObject({ code: 'shard-unavailable', kind: 'locked' });
    expect(client.state).toBe('sent');
  });
});

/** The order in which the execution of a plan goes on and the event loop takes a turn. */
async function orderOf(
  writer: ManualWriter,
  plan: PendingCommit,
  answer: () => Promise<void>,
): Promise<unknown> {
  const order: string[] = [];
  void plan.outcome.then(() => order.push('goes on'));
  setImmediate(() => order.push('turn'));
  await answer();
  await writer.clock.pass(0);
  return order;
}

describe('the execution of a plan that is written', () => {
  test('continues at once when there is nothing else to send', async () => {
    const writer = new ManualWriter();
    const plan = await writer.add('first', a);
    expect(await orderOf(writer, plan, () => writer.answer('first'))).toEqual(['goes on', 'turn']);
  });

  test('continues one event-loop turn later when others of its group are resent', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    const plan = await writer.add('p0', a);
    await writer.add('p1', b);
    await writer.answer('first');
    const answer = () => writer.answer('p0+p1', ['written', 'single']);
    expect(await orderOf(writer, plan, answer)).toEqual(['turn', 'goes on']);
    expect(writer.open).toEqual(['p1']);
  });
});

describe('the pending version of a model', () => {
  test('is the one of the first plan if the second one does not continue it', async () => {
    const writer = new ManualWriter();
    const good = await writer.add('good', a);
    const stale = new PendingCommit(good.changes, []);
    writer.staged.show(stale);
    expect(writer.staged.get(Wallet, a.id.value)?.plan).toBe(good);
    writer.staged.hide(stale);
    expect(writer.staged.get(Wallet, a.id.value)?.plan).toBe(good);
  });
});

describe('a plan that has ended', () => {
  test('does not keep what it depends on in memory', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    const plans = [await writer.add('p0', a), await writer.add('p1', a)];
    expect(plans[1]!.dependsOn).toHaveLength(1);
    await writer.answer('first');
    await writer.answer('p0+p1');
    expect(plans[1]!.dependsOn).toEqual([]);
  });

  test.each<[string, Error | undefined]>([
    ['written', undefined],
    ['refused', constraint],
  ])('is no longer referenced by pending versions when it was %s', async (_how, failure) => {
    const writer = new ManualWriter();
    const hide = vi.spyOn(writer.staged, 'hide');
    const plan = await writer.add('first', a);
    await writer.answer('first', failure);
    expect(hide.mock.calls).toEqual([[plan]]);
  });

  test('is no longer referenced by pending versions when it was refused before it was sent', async () => {
    const writer = new ManualWriter();
    await writer.add('locked', a);
    const waiting = await writer.add('waiting', a);
    const hide = vi.spyOn(writer.staged, 'hide');
    await writer.passWait();
    expect(waiting.state).toBe('aborted');
    expect(hide.mock.calls).toEqual([[waiting]]);
  });

  test('is not found among pending versions once it was removed from them', async () => {
    const writer = new ManualWriter();
    const plan = await writer.add('first', a);
    expect(writer.staged.get(Wallet, a.id.value)).toMatchObject({ plan });
    writer.staged.hide(plan);
    expect(writer.staged.get(Wallet, a.id.value)).toBeUndefined();
  });
});
