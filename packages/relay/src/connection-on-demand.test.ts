import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { unhandledRejections } from '../test/unhandled.js';
import { ConnectionOnDemand } from './connection-on-demand.js';

const timeoutMs = 1_000;
const rounds = 50;

/** A connection as the tests see it. */
interface Opened {
  readonly number: number;
  isOpen: boolean;
  isDestroyed: boolean;
  isEnded: boolean;
}

/** Connections whose opening and ending a test decides. */
class Scripted {
  readonly opened: Opened[] = [];
  readonly lates: AbortSignal[] = [];
  /** The attempts that wait for the test, if {@link opens} is false. */
  readonly attempts: PromiseWithResolvers<Opened>[] = [];
  opens = true;
  ends = true;
  readonly connection = new ConnectionOnDemand<Opened>({
    open: (late) => {
      this.lates.push(late);
      if (this.opens) return Promise.resolve(this.make());
      const attempt = Promise.withResolvers<Opened>();
      this.attempts.push(attempt);
      return attempt.promise;
    },
    isOpen: ({ isOpen }) => isOpen,
    end: (each) => {
      each.isEnded = true;
      if (!this.ends) return new Promise(() => undefined);
      each.isOpen = false;
      return Promise.resolve();
    },
    destroy: (each) => {
      each.isDestroyed = true;
      each.isOpen = false;
    },
    timeoutMs,
  });

  make(): Opened {
    const made = { number: this.opened.length + 1, isOpen: true, isDestroyed: false, isEnded: false };
    this.opened.push(made);
    return made;
  }
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const failed = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );

describe('a connection on demand', () => {
  test('is opened once for callers that need it at the same time, and kept', async () => {
    const { connection, opened } = new Scripted();
    const got = await Promise.all([connection.get(), connection.get()]);
    expect(new Set([...got, await connection.get()])).toEqual(new Set(opened));
    expect(opened).toHaveLength(1);
  });

  test('that has ended is replaced once, although two callers find it ended at the same time', async () => {
    const { connection, opened } = new Scripted();
    (await connection.get()).isOpen = false;
    const [one, other] = await Promise.all([connection.get(), connection.get()]);
    expect(one).toBe(other);
    expect(await connection.get()).toBe(one);
    expect(opened).toHaveLength(2);
  });

  test('that cannot be opened fails every caller that waits, and the next call tries again', async () => {
    const scripted = new Scripted();
    const { connection, attempts } = scripted;
    scripted.opens = false;
    const waiting = [connection.get(), connection.get()].map(failed);
    const refused = new Error('refused');
    attempts[0]?.reject(refused);
    expect(await Promise.all(waiting)).toEqual([refused, refused]);
    scripted.opens = true;
    expect((await connection.get()).number).toBe(1);
    expect(attempts).toHaveLength(1);
  });

  test('is kept although an older attempt fails after it was opened', async () => {
    const unhandled = unhandledRejections();
    const scripted = new Scripted();
    const { connection, attempts, opened } = scripted;
    scripted.opens = false;
    const waiting = failed(connection.get());
    await vi.advanceTimersByTimeAsync(timeoutMs);
    expect(await waiting).toMatchObject({ name: 'NoAnswerError' });
    scripted.opens = true;
    const current = await connection.get();
    attempts[0]?.reject(new Error('refused late'));
    expect(await unhandled()).toEqual([]);
    expect(await connection.get()).toBe(current);
    expect(opened).toEqual([current]);
    expect(current.isDestroyed).toBe(false);
  });

  test('is kept although an older one is opened too late, which alone is destroyed', async () => {
    const scripted = new Scripted();
    const { connection, attempts, lates } = scripted;
    scripted.opens = false;
    const waiting = failed(connection.get());
    await vi.advanceTimersByTimeAsync(timeoutMs);
    await waiting;
    scripted.opens = true;
    const current = await connection.get();
    const late = scripted.make();
    attempts[0]?.resolve(late);
    await expect.poll(() => late.isDestroyed).toBe(true);
    expect(await connection.get()).toBe(current);
    expect(current.isDestroyed).toBe(false);
    expect(lates.map(({ aborted }) => aborted)).toEqual([true, false]);
  });

  test('may be opened up to its timeout, and is given up then', async () => {
    const scripted = new Scripted();
    const { connection, attempts } = scripted;
    scripted.opens = false;
    const inTime = connection.get();
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    const made = scripted.make();
    attempts[0]?.resolve(made);
    expect(await inTime).toBe(made);
    made.isOpen = false;
    const tooLate = failed(connection.get());
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    expect(scripted.lates[1]?.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(await tooLate).toMatchObject({ name: 'NoAnswerError' });
    expect(scripted.lates[1]?.aborted).toBe(true);
  });

  test('leaves no timer and no listener behind, whether its attempts succeed, fail, or take too long', async () => {
    const scripted = new Scripted();
    const { connection, attempts, lates } = scripted;
    for (let round = 0; round < rounds; round++) {
      scripted.opens = true;
      (await connection.get()).isOpen = false;
      scripted.opens = false;
      const refused = failed(connection.get());
      await vi.advanceTimersByTimeAsync(0);
      attempts.at(-1)?.reject(new Error('refused'));
      await refused;
      const late = failed(connection.get());
      await vi.advanceTimersByTimeAsync(timeoutMs);
      await late;
    }
    expect(vi.getTimerCount()).toBe(0);
    expect(lates.filter((late) => getEventListeners(late, 'abort').length > 0)).toEqual([]);
  });
});

describe('an answer on a connection', () => {
  test('may take up to its timeout; after that, the connection is destroyed', async () => {
    const { connection } = new Scripted();
    const current = await connection.get();
    const answer = Promise.withResolvers<string>();
    const inTime = connection.answer(current, answer.promise);
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    answer.resolve('an answer');
    expect(await inTime).toBe('an answer');
    expect(current.isDestroyed).toBe(false);
    const tooLate = failed(connection.answer(current, new Promise(() => undefined)));
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    expect(current.isDestroyed).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(await tooLate).toMatchObject({ name: 'NoAnswerError' });
    expect(current.isDestroyed).toBe(true);
    expect((await connection.get()).number).toBe(2);
  });

  test('that is late retires a connection on which others have arrived', async () => {
    const { connection } = new Scripted();
    const current = await connection.get();
    await connection.answer(current, Promise.resolve());
    await vi.advanceTimersByTimeAsync(1);
    const late = failed(connection.answer(current, new Promise(() => undefined)));
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    await connection.answer(current, Promise.resolve());
    await vi.advanceTimersByTimeAsync(1);
    expect(await late).toMatchObject({ name: 'NoAnswerError' });
    expect((await connection.get()).number).toBe(2);
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    expect(current.isDestroyed).toBe(false);
    expect(await connection.answer(current, Promise.resolve('sent before'))).toBe('sent before');
    await vi.advanceTimersByTimeAsync(1);
    expect([current.isDestroyed, vi.getTimerCount()]).toEqual([true, 0]);
  });

  test('to a probe says nothing about those that are missing', async () => {
    const { connection } = new Scripted();
    const current = await connection.get();
    const late = failed(connection.answer(current, new Promise(() => undefined)));
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    await connection.answer(current, Promise.resolve(), true);
    await vi.advanceTimersByTimeAsync(1);
    await late;
    expect(current.isDestroyed).toBe(true);
  });

  test('that is missing on a retired connection keeps nobody from closing', async () => {
    const { connection } = new Scripted();
    const current = await connection.get();
    const late = failed(connection.answer(current, new Promise(() => undefined)));
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    await connection.answer(current, Promise.resolve());
    await vi.advanceTimersByTimeAsync(1);
    await late;
    await connection.close();
    expect([current.isDestroyed, vi.getTimerCount()]).toEqual([true, 0]);
  });

  test('that is an error destroys nothing', async () => {
    const { connection } = new Scripted();
    const current = await connection.get();
    const refused = new Error('refused');
    expect(await failed(connection.answer(current, Promise.reject(refused)))).toBe(refused);
    expect(current.isDestroyed).toBe(false);
    expect(await connection.get()).toBe(current);
  });

  test('that is late destroys the connection on which it is late, and not the one after it', async () => {
    const { connection } = new Scripted();
    const former = await connection.get();
    const late = failed(connection.answer(former, new Promise(() => undefined)));
    former.isOpen = false;
    const current = await connection.get();
    await vi.advanceTimersByTimeAsync(timeoutMs);
    await late;
    expect(former.isDestroyed).toBe(true);
    expect(current.isDestroyed).toBe(false);
    expect(await connection.get()).toBe(current);
  });

  test('that fails after the caller has given up is handled', async () => {
    const unhandled = unhandledRejections();
    const { connection } = new Scripted();
    const current = await connection.get();
    const answer = Promise.withResolvers<never>();
    const late = failed(connection.answer(current, answer.promise));
    await vi.advanceTimersByTimeAsync(timeoutMs);
    await late;
    answer.reject(new Error('closed'));
    expect(await unhandled()).toEqual([]);
  });

  test('leaves no timer behind', async () => {
    const { connection } = new Scripted();
    const current = await connection.get();
    for (let round = 0; round < rounds; round++) {
      await connection.answer(current, Promise.resolve());
      await failed(connection.answer(current, Promise.reject(new Error('refused'))));
    }
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('the end of a connection on demand', () => {
  test('ends the open connection, and refuses later calls', async () => {
    const { connection, opened } = new Scripted();
    const current = await connection.get();
    await connection.close();
    expect(current).toMatchObject({ isEnded: true, isDestroyed: false });
    await expect(connection.get()).rejects.toThrow('closed');
    expect(opened).toHaveLength(1);
  });

  test('ends a connection that is being opened', async () => {
    const scripted = new Scripted();
    const { connection, attempts } = scripted;
    scripted.opens = false;
    const waiting = failed(connection.get());
    const closing = connection.close();
    const made = scripted.make();
    attempts[0]?.resolve(made);
    await Promise.all([waiting, closing]);
    expect(made.isEnded).toBe(true);
  });

  test('destroys a connection whose end gets no answer', async () => {
    const scripted = new Scripted();
    const current = await scripted.connection.get();
    scripted.ends = false;
    const closing = scripted.connection.close();
    await vi.advanceTimersByTimeAsync(timeoutMs);
    await closing;
    expect(current.isDestroyed).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  test.each([
    ['was never opened', async () => undefined],
    [
      'could not be opened',
      async ({ connection, attempts }: Scripted) => {
        const waiting = failed(connection.get());
        attempts[0]?.reject(new Error('refused'));
        await waiting;
      },
    ],
    [
      'has ended',
      async (scripted: Scripted) => {
        scripted.opens = true;
        (await scripted.connection.get()).isOpen = false;
      },
    ],
  ])('ends nothing if the connection %s', async (_how, prepare) => {
    const scripted = new Scripted();
    scripted.opens = false;
    await prepare(scripted);
    await scripted.connection.close();
    expect(scripted.opened.filter(({ isEnded }) => isEnded)).toEqual([]);
  });
});
