import type { Cursor, HandlerCursor } from '@framework/core/adapter';
import { EventDecoder, type LogEvent, type Snapshot, parsePlace } from '@framework/drizzle-adapter/log';
import { describe, expect, test } from 'vitest';

import { LogTail, type StreamedTransaction, type TailLimits } from './log-tail.js';

const place = { epoch: 1, history: 'run' };
const slots = [0, 1];
const decoder = new EventDecoder(1_000);

/** A transaction with one event in each of these slots, committed at a position that is ten times its number. */
function transaction(xid: number, ...inSlots: readonly number[]): StreamedTransaction {
  const rows = inSlots.map((slot, index) => {
    const row = {
      xid: String(xid),
      position: String(xid * 100 + index),
      slot: String(slot),
      headers: '{}',
      id: `${xid}`,
    };
    return decoder.decode(row).event;
  });
  return { xid: BigInt(xid), commitLsn: BigInt(xid * 10), rows, bytes: 100 };
}

/** A tail that begins at transaction 100 and has these, which can be read unless stated otherwise. */
function tailWith(
  transactions: readonly StreamedTransaction[],
  { released = '1000:1000:', limits }: { readonly released?: string; readonly limits?: TailLimits } = {},
): LogTail {
  const tail = new LogTail(place, limits);
  tail.begin(100n);
  for (const each of transactions) tail.add(each);
  tail.release(snapshotOf(released));
  return tail;
}

function snapshotOf(text: string): Snapshot {
  return parsePlace(cursorAt(text)).snapshot;
}

function cursorAt(snapshot: string): Cursor {
  return `1 ${snapshot} run`;
}

/** Takes over a cursor that was read with SQL just now. */
function adopted(tail: LogTail, snapshot: string): Cursor {
  const cursor = cursorAt(snapshot);
  tail.adopt(cursor, tail.check);
  return cursor;
}

function xidsOf(tail: LogTail, cursor: Cursor, limit = 100): readonly number[] | undefined {
  return tail.read(slots, cursor, limit)?.events.map((event) => (event as LogEvent).xid);
}

function saved(...snapshots: readonly string[]): readonly HandlerCursor[] {
  return snapshots.map((snapshot, slot) => ({
    handler: 'h',
    slot,
    cursor: cursorAt(snapshot),
    paused: false,
  }));
}

describe('the tail of a log', () => {
  test('returns what a cursor does not see, and a cursor that sees it as well', () => {
    const tail = tailWith([transaction(100, 0), transaction(102, 1), transaction(105, 0)]);
    const cursor = adopted(tail, '101:101:');
    const batch = tail.read(slots, cursor, 100);
    expect(batch).toMatchObject({ next: cursorAt('101:106:101,103,104'), more: false });
    expect(xidsOf(tail, cursor)).toEqual([102, 105]);
    expect(xidsOf(tail, batch!.next)).toEqual([]);
    expect(tail.read(slots, batch!.next, 100)?.next).toBe(batch!.next);
  });

  test('returns a transaction that commits late, when it is streamed', () => {
    const tail = tailWith([transaction(103, 0)]);
    const { next } = tail.read(slots, adopted(tail, '101:101:'), 100)!;
    tail.add(transaction(102, 0));
    tail.release(snapshotOf('110:110:'));
    expect(xidsOf(tail, next)).toEqual([102]);
    expect(tail.read(slots, next, 100)?.next).toBe(cursorAt('101:104:101'));
  });

  test('leaves a cursor to SQL that does not see everything before its beginning', () => {
    const tail = tailWith([transaction(100, 0)]);
    for (const snapshot of ['99:99:', '99:105:99', '50:105:50,99'])
      expect(xidsOf(tail, adopted(tail, snapshot))).toBeUndefined();
    const [otherEpoch, otherRun] = ['2 100:100: run', '1 100:100: other'];
    for (const cursor of [otherEpoch, otherRun]) {
      tail.adopt(cursor, tail.check);
      expect(xidsOf(tail, cursor)).toBeUndefined();
    }
    expect(xidsOf(tail, cursorAt('100:100:'))).toBeUndefined();
    expect(xidsOf(tail, adopted(tail, '100:105:103'))).toEqual([]);
  });

  test('leaves every cursor to SQL until its beginning is known', () => {
    const tail = new LogTail(place);
    expect(xidsOf(tail, adopted(tail, '500:500:'))).toBeUndefined();
    expect(tail.isServing).toBe(false);
  });

  test('hands out nothing that readers with SQL cannot see yet, nor what was committed after it', () => {
    const tail = tailWith([transaction(101, 0), transaction(102, 0), transaction(103, 0)], {
      released: '102:104:102',
    });
    const cursor = adopted(tail, '100:100:');
    expect(xidsOf(tail, cursor)).toEqual([101]);
    expect(tail.isPending).toBe(true);
    expect(tail.release(snapshotOf('102:104:102'))).toBe(false);
    expect(tail.release(snapshotOf('104:104:'))).toBe(true);
    expect(tail.isPending).toBe(false);
    expect(xidsOf(tail, cursor)).toEqual([101, 102, 103]);
  });

  test('ends a batch between two transactions, and leaves one that is larger than a batch to SQL', () => {
    const tail = tailWith([transaction(100, 0, 0), transaction(101, 0, 0), transaction(102, 0, 0, 0, 0)]);
    const cursor = adopted(tail, '100:100:');
    const first = tail.read(slots, cursor, 3)!;
    expect(first).toMatchObject({ next: cursorAt('101:101:'), more: true });
    expect(first.events).toHaveLength(2);
    expect(xidsOf(tail, first.next, 3)).toBeUndefined();
    expect(xidsOf(tail, first.next, 4)).toEqual([101, 101]);
  });

  test('leaves a cursor to SQL behind which too many transactions seem to be open', () => {
    const tail = tailWith([transaction(1_100, 0)], { released: '2000:2000:' });
    expect(xidsOf(tail, adopted(tail, '100:100:'))).toBeUndefined();
    expect(xidsOf(tail, adopted(tail, '1000:1000:'))).toEqual([1_100]);
  });

  test('leaves each cursor to SQL once after a check', () => {
    const tail = tailWith([transaction(100, 0)]);
    const cursor = adopted(tail, '100:100:');
    const before = tail.check;
    tail.requireCheck();
    expect(xidsOf(tail, cursor)).toBeUndefined();
    tail.adopt(cursor, before);
    expect(xidsOf(tail, cursor)).toBeUndefined();
    tail.adopt(cursor, tail.check);
    expect(xidsOf(tail, cursor)).toEqual([100]);
  });

  test('releases the write-ahead log up to the first transaction that a saved cursor does not see', () => {
    const tail = tailWith([transaction(100, 0), transaction(101, 1), transaction(102, 0)]);
    const cursor = adopted(tail, '100:100:');
    expect(tail.settle(saved('100:100:', '99:99:'), 2_000n)).toBeUndefined();
    expect(tail.settle(saved('100:100:', '100:100:'), 2_000n)).toBe(1_000n);
    // The saved cursor of a slot need not see what has no events in the slot.
    expect(tail.settle(saved('101:101:', '100:100:'), 2_000n)).toBe(1_010n);
    expect(tail.size).toBe(2);
    expect(tail.settle(saved('101:103:101', '102:102:'), 2_000n)).toBe(2_000n);
    expect(tail.size).toBe(0);
    expect(tail.read([0], cursor, 100)?.events).toEqual([]);
  });

  test('releases nothing of the write-ahead log that holds what nobody can see yet', () => {
    const tail = tailWith([transaction(100, 0), transaction(101, 0)], { released: '101:101:' });
    expect(tail.settle(saved('200:200:'), 2_000n)).toBe(1_010n);
  });

  test('is full when it has too many transactions or too many bytes', () => {
    const limits = { transactionsMax: 2, bytesMax: 1_000 };
    const [first, second, third] = [transaction(100, 0), transaction(101, 0), transaction(102, 0)];
    expect(tailWith([first, second], { limits }).isFull).toBe(false);
    expect(tailWith([first, second, third], { limits }).isFull).toBe(true);
    expect(tailWith([{ ...first, bytes: 1_001 }], { limits }).isFull).toBe(true);
  });

  test('needs settling when half of what it may have was added since it was settled', () => {
    const limits = { transactionsMax: 4, bytesMax: 1_000 };
    const tail = tailWith([transaction(100, 0), transaction(101, 0)], { limits });
    expect(tail.needsSettling).toBe(false);
    tail.add(transaction(102, 0));
    expect(tail.needsSettling).toBe(true);
    tail.settle(saved('103:103:'), 2_000n);
    expect(tail.needsSettling).toBe(false);
    tail.add({ ...transaction(103, 0), bytes: 501 });
    expect(tail.needsSettling).toBe(true);
  });

  test('keeps the order of versions when many cursors are remembered', () => {
    const tail = tailWith([]);
    let cursor = adopted(tail, '100:100:');
    const read: number[] = [];
    for (let xid = 100; xid < 300; xid++) {
      tail.add(transaction(xid, xid % 2));
      tail.release(snapshotOf('1000:1000:'));
      const batch = tail.read(slots, cursor, 100)!;
      read.push(...batch.events.map((event) => (event as LogEvent).xid));
      cursor = batch.next;
    }
    expect(read).toEqual(Array.from({ length: 200 }, (_unused, index) => index + 100));
    expect(parsePlace(cursor).snapshot).toEqual({ xmax: 300n, inProgress: [] });
  });
});
