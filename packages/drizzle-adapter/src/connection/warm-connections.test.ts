import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { WarmConnections, watchLoan } from './warm-connections.js';

type Opened = (error: Error | undefined, client: undefined, release: () => void) => void;

/** A pool whose connections open, or fail, when the test says so. */
class FakePool {
  ending = false;
  totalCount = 0;
  readonly #opening: Opened[] = [];

  get openingCount(): number {
    return this.#opening.length;
  }

  newClient({ callback }: { readonly callback: Opened }): void {
    this.totalCount++;
    this.#opening.push(callback);
  }

  end(error?: Error): void {
    if (error !== undefined) this.totalCount--;
    this.#opening.shift()?.(error, undefined, () => undefined);
  }
}

describe('connections that are kept open', () => {
  test('are opened one at a time after a failure, and all together after a success', () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const pool = new FakePool();
    const warm = new WarmConnections(pool as never, 3);
    warm.fill();
    expect(pool.openingCount).toBe(3);
    for (let count = 0; count < 3; count++) pool.end(new Error('refused'));
    expect(pool.openingCount).toBe(0);
    vi.runOnlyPendingTimers();
    expect(pool.openingCount).toBe(1);
    warm.fill();
    expect(pool.openingCount).toBe(1);
    pool.end();
    expect(pool.openingCount).toBe(2);
    for (let count = 0; count < 2; count++) pool.end();
    expect(pool).toMatchObject({ openingCount: 0, totalCount: 3 });
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('the timers of a pool', () => {
  test('leave none behind when it is closed while it waits to try again', () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const pool = new FakePool();
    const warm = new WarmConnections(pool as never, 2);
    warm.fill();
    for (let count = 0; count < 2; count++) pool.end(new Error('refused'));
    expect(vi.getTimerCount()).toBe(1);
    warm.close();
    expect(vi.getTimerCount()).toBe(0);
  });

  test('warn once of a loan that reaches the threshold, and not of a shorter one', () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const warnings: unknown[] = [];
    const watch = (): (() => void) =>
      watchLoan({ path: 'a database' } as never, 1_000, (warning) => warnings.push(warning));
    const endInTime = watch();
    vi.advanceTimersByTime(999);
    endInTime();
    watch();
    vi.advanceTimersByTime(999);
    expect(warnings).toEqual([]);
    vi.advanceTimersByTime(60_000);
    expect(warnings).toMatchObject([{ kind: 'connection-leak', database: 'a database' }]);
    expect(vi.getTimerCount()).toBe(0);
  });
});
