import { describe, expect, test } from 'vitest';

import { OpenTransactions } from './transaction-manager.js';

const [one, other] = [{}, {}];

describe('an open transaction', () => {
  test('is found only by what its work starts', async () => {
    const transactions = new OpenTransactions<string>();
    const gate = Promise.withResolvers<void>();
    const found = transactions.runWithin(one, 'of one', async () => {
      await gate.promise;
      return transactions.of(one);
    });
    expect(transactions.of(one)).toBeUndefined();
    gate.resolve();
    expect(await found).toBe('of one');
    expect(transactions.of(one)).toBeUndefined();
  });

  test('is found beside the open transactions of other managers around it', async () => {
    const transactions = new OpenTransactions<string>();
    const found = await transactions.runWithin(one, 'of one', async () => [
      await transactions.runWithin(other, 'of other', async () => [
        transactions.of(one),
        transactions.of(other),
      ]),
      [transactions.of(one), transactions.of(other)],
    ]);
    expect(found).toEqual([
      ['of one', 'of other'],
      ['of one', undefined],
    ]);
  });

  test('is found even by work that begins only when it is awaited', async () => {
    const transactions = new OpenTransactions<string>();
    const query = {
      // oxlint-disable-next-line unicorn/no-thenable -- because a query of Drizzle is a thenable
      then: (resolve: (found: string | undefined) => void) => resolve(transactions.of(one)),
    };
    const work = (): Promise<string | undefined> => query as unknown as Promise<string | undefined>;
    expect(await transactions.runWithin(one, 'of one', work)).toBe('of one');
  });
});
