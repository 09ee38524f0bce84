import { ShardIdentifier } from '@framework/core';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LockWaits } from './lock-waits.js';

const shard = ShardIdentifier.of(0, 0);
const unavailable = { code: 'shard-unavailable', shard };
const settled = async (): Promise<void> => void (await vi.advanceTimersByTimeAsync(0));

describe('writes that wait for locks', () => {
  let waits: LockWaits;
  let running: string[];
  beforeEach(() => {
    vi.useFakeTimers();
    waits = new LockWaits({ placesMax: 2, waitMaxMs: 1_000, waitingMax: 3 });
    running = [];
  });
  afterEach(() => void vi.useRealTimers());

  const write = (rows: string, name: string) => {
    const lock = Promise.withResolvers<string>();
    const ended = waits.run(shard, rows === '' ? [] : rows.split(' '), () => {
      running.push(name);
      return lock.promise;
    });
    ended.catch(() => undefined);
    return { ended, release: () => lock.resolve(name), fail: lock.reject };
  };

  it('are one for each row, and as many as there are places', async () => {
    const first = write('a', 'a1');
    const again = write('a', 'a2');
    const other = write('b', 'b1');
    write('c', 'c1');
    await settled();
    expect(running).toEqual(['a1', 'b1']);
    other.release();
    expect(await other.ended).toBe('b1');
    expect(running).toEqual(['a1', 'b1', 'c1']);
    first.release();
    await first.ended;
    again.release();
    expect(await again.ended).toBe('a2');
    expect(running).toEqual(['a1', 'b1', 'c1', 'a2']);
  });

  it('give their places back when they fail', async () => {
    const [first, second] = [write('a', 'a1'), write('a', 'a2')];
    first.fail(new Error('cancelled'));
    await expect(first.ended).rejects.toThrow('cancelled');
    second.release();
    expect(await second.ended).toBe('a2');
    expect(waits.hasOneOf(['a'])).toBe(false);
  });

  it('are refused when their turn does not come in time, with what to do', async () => {
    write('a', 'a1');
    const late = write('a', 'a2');
    expect(waits.hasOneOf(['a'])).toBe(true);
    await vi.advanceTimersByTimeAsync(1_000);
    await expect(late.ended).rejects.toMatchObject(unavailable);
    await expect(late.ended).rejects.toThrow(/holds a lock on the row a.*pg_locks/);
    expect(running).toEqual(['a1']);
  });

  it('are refused at once when too many wait', async () => {
    for (const name of ['1', '2', '3', '4', '5']) write('', name);
    await settled();
    expect(running).toEqual(['1', '2']);
    await expect(write('', '6').ended).rejects.toMatchObject(unavailable);
  });

  it('of several rows wait for each other when they share one, and leave places for writes of other rows and of one', async () => {
    const first = write('a x', 'ax');
    write('y a', 'ya');
    write('a', 'a1');
    await settled();
    expect(running).toEqual(['ax', 'a1']);
    first.release();
    await first.ended;
    expect(running).toEqual(['ax', 'a1', 'ya']);
    expect([waits.hasOneOf(['y', 'a']), waits.hasOneOf(['y'])]).toEqual([true, false]);
  });

  it('are known by the row that they wait for', () => {
    write('a', 'a1');
    expect([waits.hasOneOf(['a']), waits.hasOneOf(['b']), waits.hasOneOf([])]).toEqual([true, false, false]);
  });
});
