import { type BlockedFailure, type BlockedHead, positionAfter } from '@framework/core/adapter';
import { expect, test } from 'vitest';
import { at } from '../suite-context.js';
import { type DeliveryContext, alone, beside, idsOf, never, step } from './delivery-context.js';

/** Registers tests of how attempts at the heads of blocked models are recorded and counted. */
export function describeAttempts(context: DeliveryContext): void {
  /** Blocks a model at its first event, whose first call has failed. */
  const blocked = async (): Promise<BlockedHead> => {
    const [event] = await context.holdWith('a', 1, 2);
    await context.fail({ event });
    return context.head();
  };
  /** Lets the head of a model fail in its next attempt. */
  const fail = (head: BlockedHead, failure: Partial<BlockedFailure> = {}): Promise<unknown> => {
    if (head.event === undefined) throw new Error('The model has no head');
    return context.fail({ event: head.event, attempts: head.attempts + 1, ...failure });
  };
  /** How many attempts count, how many calls do not, and how many attempts are open. */
  const counts = async (): Promise<readonly number[]> => {
    const { attempts, uncounted, openCount } = await context.head();
    return [attempts, uncounted, openCount];
  };

  test('A lone attempt counts from its beginning, however often it is recorded, until it is made beside others', async () => {
    const head = await blocked();
    expect(await counts()).toEqual([1, 0, 0]);
    for (let times = 0; times < 2; times++) {
      expect(await context.begin(head, alone('first'))).toBe(true);
      expect(await counts()).toEqual([2, 0, 1]);
    }
    for (let times = 0; times < 2; times++) {
      expect(await context.begin(head, beside('first'))).toBe(true);
      expect(await counts()).toEqual([1, 0, 1]);
    }
    await context.begin(head, alone('first'));
    expect(await context.begin({ ...head, attempts: 2 }, alone('second'))).toBe(true);
    expect(await context.begin(head, alone('first'))).toBe(true);
    expect(await counts()).toEqual([3, 0, 2]);
    expect((await context.row()).attempts).toBe(3);
  });

  test('Attempts at several heads are recorded at once, each for itself', async () => {
    await context.holdAll();
    for (const model of ['a', 'b', 'c']) await context.write(model, 1);
    await context.fail(...(await context.logged()).map((event) => ({ event })));
    const heads = (await context.heads()).toSorted((one, other) => (one.modelId < other.modelId ? -1 : 1));
    const [a, b, c] = [at(heads, 0), at(heads, 1), at(heads, 2)];
    expect(
      await context.store.blocked.begin([
        { head: c, attempt: alone('of c') },
        { head: { ...b, token: context.lostToken }, attempt: alone('of b') },
        { head: a, attempt: beside('of a') },
      ]),
    ).toEqual([true, false, true]);
    const counted = (await context.heads()).map(
      ({ modelId, attempts, openCount }) => `${modelId} ${attempts} ${openCount}`,
    );
    expect(counted.toSorted()).toEqual(['a 1 1', 'b 1 0', 'c 2 1']);
    expect(await context.store.blocked.begin([])).toEqual([]);
  });

  test('An attempt is taken back once, however often that is reported, and without a lease', async () => {
    const head = await blocked();
    await context.begin(head, alone('first'));
    await context.begin({ ...head, attempts: 2 }, beside('second'));
    const lost = { ...head, token: context.lostToken };
    for (const id of ['first', 'first', 'never begun']) await context.store.blocked.giveBack(lost, alone(id));
    expect(await counts()).toEqual([1, 0, 1]);
    await context.store.blocked.giveBack({ ...head, modelId: 'b' }, beside('second'));
    expect(await counts()).toEqual([1, 0, 1]);
    await context.store.blocked.giveBack(head, beside('second'));
    expect(await counts()).toEqual([1, 0, 0]);
  });

  test('No attempt begins when the head has changed since it was read, or the lease is lost', async () => {
    const head = await blocked();
    const changes = [
      { token: context.lostToken },
      { modelId: 'b' },
      { attempts: 0 },
      { attempts: 2 },
      { uncounted: 1 },
      { position: positionAfter(head.position), event: undefined },
    ];
    for (const change of changes)
      expect(await context.begin({ ...head, ...change }, alone('first'))).toBe(false);
    expect(await context.begin(head, beside('first'))).toBe(true);
    await fail(head, { attempt: beside('first') });
    expect(await context.begin(head, alone('first'))).toBe(false);
    const again = await context.head();
    await context.begin(again, beside('second'));
    await fail(again, { attempt: beside('second'), dead: true });
    for (const attempts of [2, 3])
      expect(await context.begin({ ...again, attempts }, alone('second'))).toBe(false);
    await context.store.deadLetters.skip({}, step);
    expect(await context.begin({ ...again, attempts: 0 }, alone('second'))).toBe(false);
    expect(await counts()).toEqual([0, 0, 0]);
  });

  test('An attempt that ends closes all others: it shows that the event does not end its process', async () => {
    const head = await blocked();
    await context.begin(head, alone('first'));
    await context.begin({ ...head, attempts: 2 }, alone('second'));
    await fail(head, { attempt: alone('second'), uncounted: 1 });
    await context.store.blocked.giveBack(head, alone('first'));
    expect(await counts()).toEqual([2, 1, 0]);
  });

  test('The failure of an attempt is recorded once, and that of an attempt that is not open never', async () => {
    const head = await blocked();
    await context.begin(head, beside('first'));
    const doneIds = [head.event?.id ?? ''];
    await fail(head, { attempt: beside('never begun'), error: 'unknown' });
    await fail(head, { attempt: beside('first'), error: 'first', retryAfterMs: 60_000, doneIds });
    await fail(head, { attempt: beside('first'), error: 'second', retryAfterMs: never, attempts: 9 });
    expect(await context.rows()).toMatchObject([{ error: 'first', attempts: 2 }]);
    expect(await context.store.blocked.nextDueMs(context.places())).toBeLessThanOrEqual(60_000);
    await context.fixture.pass(60_001);
    expect((await context.head()).doneIds).toEqual(doneIds);
  });

  test('A failure without an attempt is recorded only in the counts before it', async () => {
    const [event] = await context.holdWith('a', 1);
    await context.hold(event);
    for (let times = 0; times < 2; times++) await context.fail({ event, uncounted: 2, error: 'first' });
    expect(await context.rows()).toMatchObject([{ attempts: 1, uncounted: 2, error: 'first' }]);
    const failure = { event, attempts: 5, error: 'second' };
    for (const before of [undefined, { attempts: 1, uncounted: 0 }, { attempts: 0, uncounted: 2 }])
      await context.fail({ ...failure, before });
    expect(await context.rows()).toMatchObject([{ error: 'first' }]);
    await context.begin(await context.head(), alone('first'));
    await context.fail({ ...failure, before: { attempts: 1, uncounted: 2 } });
    expect(await context.rows()).toMatchObject([{ error: 'first', attempts: 2 }]);
    await context.fail({ ...failure, before: { attempts: 2, uncounted: 2 }, dead: true });
    expect(await context.rows()).toMatchObject([{ error: 'second', attempts: 5, uncounted: 0, dead: true }]);
    await context.fail({ ...failure, error: 'late', before: { attempts: 5, uncounted: 0 } });
    expect(await context.rows()).toMatchObject([{ error: 'second', dead: true }]);
  });

  test('A head that is postponed without an attempt keeps its open attempts, and a dead letter does not', async () => {
    const head = await blocked();
    await context.begin(head, alone('first'));
    const before = { attempts: 2, uncounted: 0 };
    for (let times = 0; times < 2; times++)
      await fail(head, { attempts: 2, uncounted: 1, before, error: 'down' });
    expect(await counts()).toEqual([2, 1, 1]);
    expect(await context.rows()).toMatchObject([{ error: 'down' }]);
    await context.store.blocked.giveBack(head, alone('first'));
    expect(await counts()).toEqual([1, 1, 0]);
    await context.begin({ ...head, uncounted: 1 }, alone('second'));
    await fail(head, { attempts: 2, uncounted: 1, before: { attempts: 2, uncounted: 1 }, dead: true });
    await context.store.blocked.giveBack(head, alone('second'));
    expect(await context.rows()).toMatchObject([{ attempts: 2, uncounted: 1, dead: true }]);
  });

  test('A head that fails in an attempt that was not recorded counts it, once', async () => {
    const head = await blocked();
    for (let times = 0; times < 2; times++)
      await fail(head, { attempts: 2, before: { attempts: 1, uncounted: 0 } });
    expect(await counts()).toEqual([2, 0, 0]);
    await context.begin({ ...head, attempts: 2 }, beside('first'));
    await fail(head, { attempts: 3, before: { attempts: 2, uncounted: 0 } });
    expect(await counts()).toEqual([3, 0, 0]);
    await context.store.deadLetters.skip({ dead: false }, step);
    await fail(head, { attempts: 4, before: { attempts: 3, uncounted: 0 } });
    expect(await context.heads()).toMatchObject([{ event: { modelVersion: 2 }, hasFailed: false }]);
  });

  test('A dead letter that was replayed stays as it is when its failure is reported again', async () => {
    const head = await blocked();
    const dead = { attempt: alone('first'), dead: true, error: 'no', doneIds: [head.event?.id ?? ''] };
    await context.begin(head, alone('first'));
    await fail(head, dead);
    expect(await context.rows()).toMatchObject([{ attempts: 2, dead: true }]);
    expect((await context.store.deadLetters.replay({}, step)).count).toBe(1);
    for (const failure of [dead, { ...dead, attempt: undefined, before: { attempts: 1, uncounted: 0 } }])
      await fail(head, failure);
    await context.store.blocked.giveBack(head, alone('first'));
    expect(await context.rows()).toMatchObject([{ error: 'no', dead: false }]);
    expect(await context.heads()).toMatchObject([
      { attempts: 0, uncounted: 1, openCount: 0, doneIds: dead.doneIds, hasFailed: true },
    ]);
  });

  test('A model that moves on forgets the attempts at what it passes', async () => {
    const head = await blocked();
    await context.begin(head, alone('first'));
    const { event } = head;
    if (event === undefined) throw new Error('The model has no head');
    await context.move(event, positionAfter(event));
    await context.store.blocked.giveBack(head, alone('first'));
    await fail(head, { attempt: alone('first'), dead: true });
    const next = await context.head();
    expect(next).toMatchObject({ event: { modelVersion: 2 }, hasFailed: false, attempts: 0, openCount: 0 });
    // An attempt at an untried head is recorded as well.
    expect(await context.begin(next, alone('second'))).toBe(true);
    await fail(next, { attempt: alone('second') });
    expect(await context.heads()).toMatchObject([{ hasFailed: true, attempts: 1, openCount: 0 }]);
    expect(idsOf((await context.rows()).map((row) => row.event))).toEqual([next.event?.id]);
  });

  test('A model that moves on keeps its open attempts on request, and none of them counts then', async () => {
    const [first, second, third] = await context.holdWith('a', 1, 2, 3);
    await context.hold(first);
    const head = await context.head();
    await context.begin(head, beside('of a dead process'));
    await context.begin({ ...head, attempts: 0 }, alone('first'));
    await context.move(first, positionAfter(first), { keepsAttempts: true });
    const next = await context.head();
    expect(next).toMatchObject({ event: { id: second.id }, hasFailed: false, attempts: 0, openCount: 2 });
    await context.store.blocked.giveBack(next, alone('first'));
    expect((await context.head()).openCount).toBe(1);
    // The attempt fails at a later event.
    await context.fail({ event: third, attempt: beside('of a dead process') });
    expect(await context.head()).toMatchObject({ event: { id: third.id }, attempts: 1, openCount: 0 });
  });
}
