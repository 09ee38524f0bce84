import { describe, expect, test } from 'vitest';

import { ManualWriter, errorOf } from '../../test/manual-writer.js';
import { global, openWallet } from '../../test/test-executor.js';
import {
  CommitOutcomeUnknownError,
  ConstraintViolationError,
  ShardUnavailableError,
} from '../storage/storage-errors.js';
import type { PendingCommit } from './pending-commit.js';

const constraint = new ConstraintViolationError(global, { constraint: 'a', table: 'b' });
const [a, b, c] = [openWallet(), openWallet(), openWallet()];

describe('a group that fails as a whole', () => {
  test('continues in parallel, plan by plan, if plans have no model in common', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    for (const [index, wallet] of [a, b, c].entries()) await writer.add(`p${index}`, wallet);
    await writer.answer('first');
    await writer.answer('p0+p1+p2', constraint);
    expect(writer.open).toEqual(['p0', 'p1', 'p2']);
  });

  test('continues in halves, one after the other, if plans continue each other', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    const plans: PendingCommit[] = [];
    for (const name of ['p0', 'p1', 'p2', 'p3']) plans.push(await writer.add(name, a));
    await writer.answer('first');
    await writer.answer('p0+p1+p2+p3', constraint);
    expect(writer.open).toEqual(['p0+p1']);
    await writer.answer('p0+p1');
    expect(writer.open).toEqual(['p2+p3']);
    await writer.answer('p2+p3', constraint);
    expect(writer.open).toEqual(['p2']);
    await writer.answer('p2', constraint);
    expect(writer.open).toEqual([]);
    expect(await Promise.all(plans.map(errorOf))).toMatchObject([
      undefined,
      undefined,
      constraint,
      { code: 'stale-record' },
    ]);
  });

  test('is divided into chains of plans that continue each other, which are sent in parallel', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    for (const [name, wallet] of Object.entries({ p0: a, p1: b, p2: c, p3: b, p4: c }))
      await writer.add(name, wallet);
    await writer.answer('first');
    await writer.answer('p0+p1+p2+p3+p4', constraint);
    expect(writer.open).toEqual(['p0', 'p1+p3', 'p2+p4']);
  });

  test('continues in halves if a plan continues several others', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    await writer.add('p0', a);
    await writer.add('p1', b);
    await writer.add('p2', a, b);
    await writer.add('p3', a, b);
    await writer.answer('first');
    await writer.answer('p0+p1+p2+p3', new Error('a bug of the adapter'));
    expect(writer.open).toEqual(['p0+p1']);
    await writer.answer('p0+p1');
    expect(writer.open).toEqual(['p2+p3']);
  });

  test('does not hold up later plans of other models', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    await writer.add('p0', a);
    await writer.add('p1', b);
    await writer.answer('first');
    await writer.answer('p0+p1', constraint);
    await writer.add('other', c);
    await writer.add('same', a);
    expect(writer.open).toEqual(['p0', 'p1', 'other']);
    await writer.answer('other');
    expect(writer.open).toEqual(['p0', 'p1']);
    await writer.answer('p0', constraint);
    expect(writer.open).toEqual(['p1']);
  });

  test('takes limited capacity', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    for (let index = 0; index < 12; index++) await writer.add(`p${index}`, openWallet());
    await writer.answer('first');
    await writer.sent[0]!.answer(constraint);
    expect(writer.open).toHaveLength(8);
    await writer.add('other', a);
    expect(writer.open.at(-1)).toBe('other');
    await writer.answer('p0');
    expect(writer.open).toHaveLength(9);
  });

  test('fails for all if the shard is unavailable', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    const plans = [await writer.add('p0', a), await writer.add('p1', b)];
    await writer.answer('first');
    const unavailable = new ShardUnavailableError(global, 'it is down');
    await writer.answer('p0+p1', unavailable);
    expect(await Promise.all(plans.map(errorOf))).toEqual([unavailable, unavailable]);
    expect(writer.open).toEqual([]);
  });
});

describe('plans that a group could not hold', () => {
  test('are written in parallel, and in order if they change the same model', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    for (const [name, wallet] of Object.entries({ p0: a, p1: a, p2: b })) await writer.add(name, wallet);
    await writer.answer('first');
    await writer.answer('p0+p1+p2', ['single', 'single', 'single']);
    expect(writer.open).toEqual(['p0', 'p2']);
    await writer.answer('p0');
    expect(writer.open).toEqual(['p2', 'p1']);
  });

  test('include those that its answer does not mention', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    const plans = [await writer.add('p0', a), await writer.add('p1', b)];
    await writer.answer('first');
    await writer.answer('p0+p1', ['written']);
    expect(plans.map(({ state }) => state)).toEqual(['written', 'sent']);
    expect(writer.commits).toEqual(['p1']);
  });
});

/** A chain of two plans whose group ends as unknown, and a third plan that waits behind it. */
async function unknownChain(): Promise<{
  readonly writer: ManualWriter;
  readonly plans: readonly PendingCommit[];
}> {
  const writer = new ManualWriter();
  await writer.add('first', openWallet());
  const plans = [await writer.add('p0', a), await writer.add('p1', a)];
  await writer.answer('first');
  plans.push(await writer.add('p2', a));
  await writer.answer('p0+p1', [unknown('p0'), unknown('p1')]);
  return { writer, plans };
}

function unknown(action: string): CommitOutcomeUnknownError {
  return new CommitOutcomeUnknownError(global, action);
}

describe('a write whose outcome is unknown', () => {
  test('is looked up plan by plan, while plans of other models continue', async () => {
    const { writer } = await unknownChain();
    expect(writer.asked.map(({ action }) => action)).toEqual(['p0', 'p1']);
    await writer.add('other', b);
    expect(writer.open).toEqual(['other']);
    await writer.asked[0]!.answer(true);
    expect(writer.open).toEqual(['other']);
    await writer.asked[1]!.answer(true);
    await writer.answer('other');
    expect(writer.open).toEqual(['p2']);
  });

  test('is looked up plan by plan, whatever session an error names', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    const plans = [await writer.add('p0', a), await writer.add('p1', b)];
    await writer.answer('first');
    await writer.answer('p0+p1', new CommitOutcomeUnknownError(global, 'p0', { session: 'of p0' }));
    expect(writer.asked).toMatchObject([
      { action: 'p0', session: undefined },
      { action: 'p1', session: undefined },
    ]);
    await writer.asked[0]!.answer(true);
    await writer.asked[1]!.answer(unknown('p1'));
    expect(await Promise.all(plans.map(errorOf))).toMatchObject([undefined, { actionId: 'p1' }]);
  });

  test('is reported as unknown for each plan that was sent, and as stale for none', async () => {
    const { writer, plans } = await unknownChain();
    await writer.asked[0]!.answer(unknown('p0'));
    await writer.asked[1]!.answer(unknown('p1'));
    const errors = await Promise.all(plans.map(errorOf));
    expect(errors).toMatchObject([
      { code: 'commit-outcome-unknown', actionId: 'p0' },
      { code: 'commit-outcome-unknown', actionId: 'p1' },
      { code: 'transient-storage' },
    ]);
  });

  test('is looked up for each plan, whatever became of the plan before it', async () => {
    const { writer, plans } = await unknownChain();
    await writer.asked[0]!.answer(unknown('p0'));
    await writer.asked[1]!.answer(true);
    expect(await errorOf(plans[1]!)).toBeUndefined();
  });

  test('is never written again, even if an adapter reports it for a whole group', async () => {
    const writer = new ManualWriter();
    await writer.add('first', openWallet());
    const plans = [await writer.add('p0', a), await writer.add('p1', b)];
    await writer.answer('first');
    const lostAnswer = unknown('p0');
    await writer.answer('p0+p1', lostAnswer);
    expect(writer.open).toEqual([]);
    expect(writer.asked.map(({ action }) => action)).toEqual(['p0', 'p1']);
    await writer.asked[0]!.answer(true);
    await writer.asked[1]!.answer(false);
    expect(await Promise.all(plans.map(errorOf))).toMatchObject([
      undefined,
      { code: 'transient-storage', cause: { actionId: 'p1', cause: lostAnswer } },
    ]);
  });
});
