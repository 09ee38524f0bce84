import {
  ShardIdentifier,
  ShardUnavailableError,
  StaleRecordError,
  TransientStorageError,
} from '@framework/core';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { leftBehind } from '../../../core/test/left-behind.js';
import { LockWaits } from './lock-waits.js';

const shard = ShardIdentifier.of(0, 0);
const unavailable = { code: 'shard-unavailable', kind: 'locked', shard };
const place = { of: () => 'first-1 on db/first' };
const settled = async (): Promise<void> => void (await vi.advanceTimersByTimeAsync(0));
const notInTime = Object.assign(new pg.DatabaseError('lock timeout', 1, 'error'), { code: '55P03' });
const cancelled = Object.assign(new pg.DatabaseError('canceling statement', 7, 'error'), { code: '57014' });
const locked = new TransientStorageError(shard, 'lock timeout', { cause: notInTime });

describe('writes that wait for locks', () => {
  let waits: LockWaits;
  let running: string[];
  beforeEach(() => {
    vi.useFakeTimers();
    waits = new LockWaits({ poolMax: 4, waitMaxMs: 1_000, waitingMax: 3, place });
    running = [];
  });
  afterEach(() => void vi.useRealTimers());

  /** A write whose attempts are recorded by its name, with a question mark if brief; each lasts until the test ends it. */
  const write = (rows: string, name: string) => {
    let turn = Promise.withResolvers<string>();
    const ended = waits.run(shard, rows === '' ? [] : rows.split(' '), (isBrief) => {
      running.push(isBrief ? `${name}?` : name);
      turn = Promise.withResolvers<string>();
      return turn.promise;
    });
    ended.catch(() => undefined);
    const release = (): Promise<void> => (turn.resolve(name), settled());
    const fail = (error: unknown): Promise<void> => (turn.reject(error), settled());
    return { ended, release, fail };
  };

  /** A write that must not wait as long as others. */
  const writeUrgently = (row: string): Promise<string> => waits.run(shard, [row], async () => row, 100);

  test('take one place per row, up to the number of places, plus one for a brief attempt', async () => {
    const first = write('a', 'a1');
    const again = write('a', 'a2');
    const other = write('b', 'b1');
    const brief = write('c', 'c1');
    write('d', 'd1');
    await settled();
    expect(running).toEqual(['a1', 'b1', 'c1?']);
    await other.release();
    expect(await other.ended).toBe('b1');
    expect(running).toEqual(['a1', 'b1', 'c1?', 'd1']);
    await first.release();
    await again.release();
    expect(await again.ended).toBe('a2');
    await brief.release();
    expect(await brief.ended).toBe('c1');
    expect(running).toEqual(['a1', 'b1', 'c1?', 'd1', 'a2']);
  });

  test('are tried in turn while all places are taken, and finish once their row is free', async () => {
    write('a', 'a1');
    write('b', 'b1');
    const [c, d, e] = [write('c', 'c1'), write('d', 'd1'), write('e', 'e1')];
    await settled();
    await c.fail(locked);
    await d.fail(locked);
    await e.release();
    expect(await e.ended).toBe('e1');
    await c.fail(locked);
    await d.release();
    expect(running).toEqual(['a1', 'b1', 'c1?', 'd1?', 'e1?', 'c1?', 'd1?', 'c1?']);
    expect([waits.hasOneOf(['c']), waits.hasOneOf(['d'])]).toEqual([true, false]);
  });

  test('are not tried when that would take the last connection', async () => {
    waits = new LockWaits({ poolMax: 2, waitMaxMs: 1_000, waitingMax: 3, place });
    const a = write('a', 'a1');
    write('b', 'b1');
    await settled();
    expect(running).toEqual(['a1']);
    await a.release();
    expect(running).toEqual(['a1', 'b1']);
  });

  test.each<[string, Error | undefined]>([
    ['was written', undefined],
    ['turned out stale', new StaleRecordError('Wallet', 'c', 1)],
  ])('on a row that %s go before writes to rows that are still locked', async (_how, failure) => {
    write('a', 'a1');
    write('b', 'b1');
    const c = write('c', 'c1');
    write('d', 'd1');
    write('c', 'c2');
    await settled();
    await (failure === undefined ? c.release() : c.fail(failure));
    expect(running.slice(2)).toEqual(['c1?', 'c2?']);
  });

  test('get an attempt that is not brief as soon as a place is free', async () => {
    const a = write('a', 'a1');
    write('b', 'b1');
    const c = write('c', 'c1');
    await settled();
    await a.release();
    await c.fail(locked);
    expect(running).toEqual(['a1', 'b1', 'c1?', 'c1']);
  });

  test('release their place when they fail', async () => {
    const [first, second] = [write('a', 'a1'), write('a', 'a2')];
    await settled();
    await first.fail(new Error('cancelled'));
    await expect(first.ended).rejects.toThrow('cancelled');
    await second.release();
    expect(await second.ended).toBe('a2');
    expect(waits.hasOneOf(['a'])).toBe(false);
  });

  test.each<[end: string, failure: Error | undefined]>([
    ['succeeded', undefined],
    ['failed', new Error('refused by a trigger')],
    ['run into the lock again', locked],
    ['turned out stale', new StaleRecordError('Wallet', 'a', 1)],
    ['been cancelled', new ShardUnavailableError(shard, 'canceling statement', { cause: cancelled })],
  ])('get a place after any number of writes have %s', async (_end, failure) => {
    const begun: boolean[] = [];
    const attempt = async (isBrief: boolean): Promise<void> => {
      begun.push(isBrief);
      // A brief attempt that fails would be repeated for ever.
      if (failure !== undefined && !isBrief) throw failure;
    };
    for (let round = 0; round < 12; round++)
      for (const urgentWaitMs of [100, undefined]) {
        const written = await Promise.allSettled([waits.run(shard, ['a'], attempt, urgentWaitMs)]);
        expect(written[0]?.status).toBe(failure === undefined ? 'fulfilled' : 'rejected');
      }
    expect(begun).toEqual(Array.from({ length: 24 }, () => false));
  });

  test('are refused, with a remedy, when their turn does not come in time', async () => {
    write('a', 'a1');
    const late = write('a', 'a2');
    expect(waits.hasOneOf(['a'])).toBe(true);
    await vi.advanceTimersByTimeAsync(1_000);
    await expect(late.ended).rejects.toMatchObject(unavailable);
    await expect(late.ended).rejects.toThrow(
      /shard \(0, 0\) first-1 on db\/first is unavailable: .*holds a lock on the row a.*pg_locks/,
    );
    expect(running).toEqual(['a1']);
  });

  test('are refused earlier if their caller will retry them later anyway', async () => {
    write('a', 'a1');
    const urgent = waits.run(shard, ['a'], async () => 'a2', 100);
    urgent.catch(() => undefined);
    const other = write('a', 'a3');
    await vi.advanceTimersByTimeAsync(100);
    await expect(urgent).rejects.toMatchObject(unavailable);
    await expect(urgent).rejects.toThrow(/did not get its turn within 100 ms/);
    await vi.advanceTimersByTimeAsync(900);
    await expect(other.ended).rejects.toThrow(/did not get its turn within 1000 ms/);
  });

  test('that are retried anyway are refused at once behind another one for the row', async () => {
    const first = write('a', 'a1');
    const urgent = writeUrgently('a');
    await expect(writeUrgently('a')).rejects.toMatchObject(unavailable);
    await expect(writeUrgently('a')).rejects.toThrow(
      /first-1 .*the row a.* would be retried anyway already waits for it/,
    );
    expect(await writeUrgently('b')).toBe('b');
    await first.release();
    expect(await urgent).toBe('a');
    expect(await writeUrgently('a')).toBe('a');
  });

  test('take only a few of the places if their caller will retry them later anyway', async () => {
    waits = new LockWaits({ poolMax: 20, waitMaxMs: 1_000, waitingMax: 20, place });
    const begun: string[] = [];
    const begin = (row: string): void => {
      const note = async (isBrief: boolean): Promise<void> => {
        begun.push(isBrief ? `${row}?` : row);
        await new Promise(() => undefined);
      };
      waits.run(shard, [row], note, 100).catch(() => undefined);
    };
    for (const row of ['a', 'b', 'c', 'd', 'e', 'f']) begin(row);
    write('g', 'g1');
    await settled();
    expect([begun, running]).toEqual([['a', 'b', 'c', 'd', 'e?'], ['g1']]);
  });

  test('that are retried anyway are refused at once, for any row, when eight of them already wait', async () => {
    waits = new LockWaits({ poolMax: 20, waitMaxMs: 1_000, waitingMax: 20, place });
    for (const row of ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'])
      waits.run(shard, [row], () => new Promise<never>(() => undefined), 100).catch(() => undefined);
    await settled();
    await expect(writeUrgently('i')).rejects.toMatchObject(unavailable);
    await expect(writeUrgently('i')).rejects.toThrow(
      /the row i.* 8 writes that would be retried anyway already wait for locks/,
    );
    const patient = write('i', 'i1');
    await settled();
    expect(running).toEqual(['i1']);
    await patient.release();
    // The three that found no place have been refused by now.
    await vi.advanceTimersByTimeAsync(100);
    const later = writeUrgently('i');
    later.catch(() => undefined);
    await vi.advanceTimersByTimeAsync(100);
    await expect(later).rejects.toThrow(/did not get its turn within 100 ms/);
  });

  test('are refused as locked out when the server cancels them', async () => {
    const first = write('a', 'a1');
    await settled();
    await first.fail(new ShardUnavailableError(shard, 'canceling statement', { cause: cancelled }));
    await expect(first.ended).rejects.toMatchObject({ ...unavailable, cause: cancelled });
    await expect(first.ended).rejects.toThrow(/first-1 .* may hold a lock on the row a.*pg_locks/);
  });

  test('are refused when their time runs out during an attempt', async () => {
    write('a', 'a1');
    write('b', 'b1');
    const late = write('c', 'c1');
    await vi.advanceTimersByTimeAsync(1_000);
    await late.fail(locked);
    await expect(late.ended).rejects.toMatchObject(unavailable);
    expect(running).toEqual(['a1', 'b1', 'c1?']);
  });

  test('are refused at once when too many are waiting', async () => {
    for (const name of ['1', '2', '3', '4', '5']) write('', name);
    await settled();
    expect(running).toEqual(['1', '2', '3?']);
    await expect(write('', '6').ended).rejects.toMatchObject(unavailable);
  });

  test('on several rows are not overtaken by later writes that share a row with them', async () => {
    const ac = write('a c', 'ac');
    const bd = write('b d', 'bd');
    write('a b', 'ab');
    write('a e', 'ae');
    await settled();
    await ac.release();
    expect(running).toEqual(['ac', 'bd']);
    await bd.release();
    expect(running).toEqual(['ac', 'bd', 'ab']);
  });

  test('on several rows queue when they share a row, leaving places for other writes', async () => {
    const first = write('a x', 'ax');
    write('y a', 'ya');
    write('a', 'a1');
    await settled();
    expect(running).toEqual(['ax', 'a1']);
    await first.release();
    await first.ended;
    expect(running).toEqual(['ax', 'a1', 'ya']);
    expect([waits.hasOneOf(['y', 'a']), waits.hasOneOf(['y'])]).toEqual([true, false]);
  });

  test('are found by the row that they wait for', () => {
    write('a', 'a1');
    expect([waits.hasOneOf(['a']), waits.hasOneOf(['b']), waits.hasOneOf([])]).toEqual([true, false, false]);
  });
});

test('writes that wait for locks leave nothing behind, whether they finish, fail or are refused', async () => {
  const waits = new LockWaits({ poolMax: 4, waitMaxMs: 60_000, waitingMax: 2, place });
  const left = await leftBehind(async (number) => {
    const [row, other] = [`a${number}`, `b${number}`];
    const turn = Promise.withResolvers<void>();
    const running = [row, row, other].map((each) => waits.run(shard, [each], () => turn.promise));
    const several = waits.run(shard, [row, other], () => turn.promise);
    const refused = await Promise.allSettled(
      [1, 2, 3].map(() => waits.run(shard, [row], () => turn.promise)),
    );
    expect(refused.map(({ status }) => status)).toContain('rejected');
    expect(waits.hasOneOf([row])).toBe(true);
    turn.resolve();
    await Promise.all([...running, several]);
    await expect(waits.run(shard, [row], () => Promise.reject(locked))).rejects.toBeDefined();
    const urgent = waits.run(shard, [row], async () => undefined, 60_000);
    await urgent;
    expect(waits.hasOneOf([row, other])).toBe(false);
  });
  expect(left).toEqual([]);
});
