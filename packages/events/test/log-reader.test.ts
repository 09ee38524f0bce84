import type { DeliverableEvent, EventBatch } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { LogReader } from '../src/subscription/log-reader.js';
import { deposited } from './account.js';

/** A log that records reads, and answers when and as a test decides. */
class AskedLog {
  readonly reads: string[] = [];
  readonly #answers: PromiseWithResolvers<EventBatch>[] = [];

  read(
    slots: readonly number[],
    cursor: string,
    limit: number,
    bytesMax: number | undefined,
  ): Promise<EventBatch> {
    this.reads.push(`${slots.join('+')} from ${cursor}: ${limit} of ${bytesMax}`);
    const answer = Promise.withResolvers<EventBatch>();
    this.#answers.push(answer);
    return answer.promise;
  }

  /** Answers a read; the first one is 0. */
  answer(read: number, events: readonly DeliverableEvent[], more = false): void {
    this.#answers[read]!.resolve({ events, next: 'next', more });
  }

  fail(read: number, error: Error): void {
    this.#answers[read]!.reject(error);
  }
}

function readerOf(log: AskedLog): LogReader {
  return new LogReader(log, { readMax: 100, readBytesMax: 100_000 });
}

test('handlers at the same position share one read, even while it is running', async () => {
  const log = new AskedLog();
  const reader = readerOf(log);
  const batches = [reader.read([0, 1], '5'), reader.read([0, 1], '5')];
  log.answer(0, [deposited('a', 1), deposited('b', 1)]);
  batches.push(reader.read([0, 1], '5'));
  const [batch, ...others] = await Promise.all(batches);
  batches.push(reader.read([0, 1], '5'));
  expect(batch).toMatchObject({ events: [{ id: 'a1' }, { id: 'b1' }], next: 'next', more: false });
  expect([...others, await batches.at(-1)].every((other) => other === batch)).toBe(true);
  expect(log.reads).toEqual(['0+1 from 5: 100 of 1000']);
  expect(reader.foundCount).toBe(2);
});

test('handlers at other positions, or in other slots, have their own reads', () => {
  const log = new AskedLog();
  const reader = readerOf(log);
  void reader.read([0], '5');
  void reader.read([0], '6');
  void reader.read([1], '5');
  void reader.read([0, 1], '5');
  expect(log.reads.map((read) => read.split(':')[0])).toEqual([
    '0 from 5',
    '0 from 6',
    '1 from 5',
    '0+1 from 5',
  ]);
});

test.each([
  ['nothing', [], false, 2],
  ['something', [deposited('a', 1)], false, 1],
  ['no event, although there are more', [], true, 1],
])(
  'a read that found %s is repeated after a commit, if that can change its result',
  async (_what, found, more, readCount) => {
    const log = new AskedLog();
    const reader = readerOf(log);
    const first = reader.read([0], '5');
    log.answer(0, found, more);
    expect(await first).toMatchObject({ generation: 0 });
    expect(await reader.read([0], '5')).toBe(await first);
    expect(log.reads).toHaveLength(1);
    reader.refresh();
    void reader.read([0], '5');
    expect(log.reads).toHaveLength(readCount);
  },
);

test('a batch says which commits were known when its reading began', async () => {
  const log = new AskedLog();
  const reader = readerOf(log);
  const before = reader.read([0], '5');
  reader.refresh();
  const after = reader.read([0], '5');
  log.answer(0, []);
  log.answer(1, []);
  expect([await before, await after]).toMatchObject([{ generation: 0 }, { generation: 1 }]);
  expect(reader.generation).toBe(1);
});

test('a read that failed is reported to all callers who share it, and the next one reads again', async () => {
  const log = new AskedLog();
  const reader = readerOf(log);
  const error = new Error('down');
  const outcomes = Promise.allSettled([reader.read([0], '5'), reader.read([0], '5')]);
  log.fail(0, error);
  const rejected = { status: 'rejected', reason: error };
  expect(await outcomes).toEqual([rejected, rejected]);
  const next = reader.read([0], '5');
  log.answer(1, [deposited('a', 1)]);
  expect(await next).toMatchObject({ events: [{ id: 'a1' }] });
  expect(reader.foundCount).toBe(1);
});

test('a read that fails late does not prevent the later one from being shared', async () => {
  const log = new AskedLog();
  const reader = readerOf(log);
  const early = reader.read([0], '5');
  reader.refresh();
  const late = reader.read([0], '5');
  log.fail(0, new Error('down'));
  await expect(early).rejects.toThrow('down');
  expect(reader.read([0], '5')).toBe(late);
  expect(log.reads).toHaveLength(2);
});

test('the last four batches that were read are kept', async () => {
  const log = new AskedLog();
  const reader = readerOf(log);
  const readCount = async (cursor: string): Promise<number> => {
    const before = log.reads.length;
    const batch = reader.read([0], cursor);
    if (log.reads.length > before) log.answer(before, [deposited('a', 1)]);
    await batch;
    return log.reads.length - before;
  };
  for (const cursor of ['1', '2', '3', '4', '5']) expect(await readCount(cursor)).toBe(1);
  for (const cursor of ['2', '3', '4', '5']) expect(await readCount(cursor)).toBe(0);
  for (const cursor of ['1', '2']) expect(await readCount(cursor)).toBe(1);
  for (const cursor of ['4', '5', '1', '2']) expect(await readCount(cursor)).toBe(0);
});

function sized(bytes: number, omitted = false): readonly DeliverableEvent[] {
  return [{ ...deposited('a', 1), bytes, omitted }];
}

test('the batches that are kept have no more bytes than one read may return', async () => {
  const log = new AskedLog();
  const reader = readerOf(log);
  const reads = ['1', '2', '3'].map((cursor) => reader.read([0], cursor));
  log.answer(0, sized(60_000));
  log.answer(1, sized(1_000_000, true));
  // The large event has its headers in memory.
  log.answer(2, sized(39_900));
  await Promise.all(reads);
  for (const cursor of ['1', '2', '3']) void reader.read([0], cursor);
  expect(log.reads).toHaveLength(3);
  void reader.read([0], '4');
  log.answer(3, sized(50_000));
  await reader.read([0], '4');
  for (const cursor of ['4', '3', '2', '1']) void reader.read([0], cursor);
  expect(log.reads.slice(4).map((read) => read.split(':')[0])).toEqual(['0 from 1']);
});

test('a batch that was used again is kept longer than those that were not', async () => {
  const log = new AskedLog();
  const reader = readerOf(log);
  const read = async (cursor: string): Promise<void> => {
    const before = log.reads.length;
    const batch = reader.read([0], cursor);
    if (log.reads.length > before) log.answer(before, []);
    await batch;
  };
  for (const cursor of ['1', '2', '3', '4']) await read(cursor);
  reader.refresh();
  for (const cursor of ['1', '5']) await read(cursor);
  const before = log.reads.length;
  await read('1');
  expect(log.reads).toHaveLength(before);
});
