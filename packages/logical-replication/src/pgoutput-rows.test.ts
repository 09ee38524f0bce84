import { describe, expect, test } from 'vitest';

import { TransactionAssembler, formatLsn, parseLsn } from './pgoutput-rows.js';

describe('a position in the write-ahead log', () => {
  test.each([
    ['0/0', 0n],
    ['0/1', 1n],
    ['0/FFFFFFFF', 2n ** 32n - 1n],
    ['1/0', 2n ** 32n],
    ['16/B374D848', 0x16_b374_d848n],
    ['FFFFFFFF/FFFFFFFF', 2n ** 64n - 1n],
  ])('%s is number %d, and is written as it was read', (text, number) => {
    expect([parseLsn(text), formatLsn(number)]).toEqual([number, text]);
  });

  test.each([null, '', '0', '0/', '/0', '0/G', '0/0 ', '0/0/0'])('cannot be %j', (text) => {
    expect(() => parseLsn(text)).toThrow('is not a position');
  });
});

describe('a streamed transaction', () => {
  const relation = { schema: 'eventlog', name: 'events' };
  /** A transaction whose rows have headers of this many characters of three bytes. */
  const sizeOf = (rowCount: number, characters: number): unknown => {
    const assembler = new TransactionAssembler(1, Infinity);
    const take = (message: object): unknown => assembler.take(message as never);
    take({ tag: 'begin', xid: 7 });
    for (let index = 0; index < rowCount; index++) {
      const headers = '€'.repeat(characters);
      take({ tag: 'insert', relation, new: { xid: '7', epoch: '1', event_type: 'E', headers } });
    }
    const commit = take({ tag: 'commit', commitLsn: '0/1', commitEndLsn: '0/2' }) as {
      readonly transaction: { readonly rows: readonly unknown[] } | 'left-out' | undefined;
    };
    return typeof commit.transaction === 'object' ? commit.transaction.rows.length : commit.transaction;
  };

  test('is left to SQL beyond 16 MiB, counted in bytes', () => {
    expect(sizeOf(0, 0)).toBeUndefined();
    expect(sizeOf(5, 1_048_576)).toBe(5);
    expect(sizeOf(6, 1_048_576)).toBe('left-out');
  });

  test('with rows of other transactions or epochs has none of them', () => {
    const assembler = new TransactionAssembler(2, 1_000);
    const take = (message: object): unknown => assembler.take(message as never);
    take({ tag: 'begin', xid: 7 });
    for (const own of [{ xid: '8' }, { epoch: '1' }, { event_type: null }])
      take({ tag: 'insert', relation, new: { xid: '7', epoch: '2', event_type: 'E', ...own } });
    // Only the low half of a number is in the message that begins a transaction.
    take({ tag: 'insert', relation, new: { xid: String(2 ** 32 + 7), epoch: '2', event_type: 'E' } });
    const commit = take({ tag: 'commit', commitLsn: '0/1', commitEndLsn: '0/2' });
    expect(commit).toMatchObject({ endLsn: 2n, transaction: { xid: BigInt(2 ** 32 + 7), rows: [{}] } });
  });
});
