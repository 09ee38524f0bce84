import { describe, expect, it } from 'vitest';
import type { AccountFields } from '../domain/account.js';
import { decimal } from '../domain/decimal-text.js';
import { type SuiteContext, abroad, home } from '../suite-context.js';

const largest = `${'9'.repeat(20)}.${'9'.repeat(18)}`;
const text = `'single' "double" \\back ; -- $1 %s \n\t\r "" '' ünïcödé 日本語 🏦👩🏽‍🚀 \u{10ffff} \u0001 \u200d`;

const exact: { readonly [Field in keyof AccountFields]: readonly AccountFields[Field][] } = {
  balance: [largest, `-${largest}`, decimal('0.000000000000000001'), decimal('-0.1'), decimal('100')],
  quota: [2n ** 53n + 1n, -(2n ** 53n) - 1n, 2n ** 63n - 1n, -(2n ** 63n), 0n],
  score: [0.1, -1.5e-7, 5e-324, Number.MAX_VALUE, Number.MIN_SAFE_INTEGER, 1 / 3],
  dueDate: [
    new Date(0),
    new Date('1850-06-01T12:34:56.789Z'),
    new Date('2024-02-29T23:59:59.999Z'),
    new Date('1000-01-01T00:00:00.000Z'),
    new Date('9999-12-31T23:59:59.999Z'),
  ],
  note: [null, '', ' ', text, 'x'.repeat(100_000), 'null', '0123'],
  owner: ['', text, "Robert'); drop table accounts;--"],
  settings: [
    {},
    [],
    { a: 1, b: [true, null, 'x', { c: 0.1 }], 'quoted "key"': text, '': 'empty key' },
    { big: Number.MAX_SAFE_INTEGER, small: 5e-324, large: 1.7976931348623157e308, negative: -0.5 },
    [[[[[]]]], [{}]],
    'a text',
    '12',
    'true',
    '{"looks": "like JSON"}',
    '"quoted"',
    0,
    12,
    false,
  ],
};

const cases = (Object.keys(exact) as (keyof AccountFields)[]).flatMap((field) =>
  exact[field].map((value) => ({ field, value, shown: shown(value) })),
);

/** Registers that what is stored comes back as the same value. */
export function describeValues(context: SuiteContext): void {
  describe('the round trip', () => {
    it.each(cases)('keeps a $field of $shown', async ({ field, value }) => {
      expect(await readBack(context, field, value)).toEqual(Array.from({ length: 6 }, () => value));
    });

    it('keeps what an event says', async () => {
      const account = await context.openAccount(home, { owner: text, balance: largest });
      const credited = await context.credit(account, decimal('-0.000000000000000001'));
      expect(credited.balance).toBe(`${largest.slice(0, -1)}8`);
      const [opened, reduced] = await context.storedEvents();
      expect(opened?.payload).toEqual({ owner: text, balance: largest });
      expect(reduced?.payload).toEqual({
        amount: decimal('-0.000000000000000001'),
        newBalance: (await context.accounts.getById(account.id)).balance,
      });
    });
  });
}

/** Stores a value in a new row and in an updated one, and gives what every way of reading makes of both. */
async function readBack(
  context: SuiteContext,
  field: keyof AccountFields,
  value: unknown,
): Promise<readonly unknown[]> {
  const added = await context.openAccount(home, { [field]: value });
  const updated = await context.openAccount(abroad);
  await context.stage((plan) => plan.update(updated.adjust({ [field]: value })));
  const { accounts } = context;
  const read = [
    await accounts.getById(added.id),
    await accounts.getById(updated.id),
    ...(await accounts.findAllByIds([added.id, updated.id])),
    ...(await accounts.findAll()),
  ];
  return read.map((account) => account[field]);
}

function shown(value: unknown): string {
  if (value instanceof Date) return value.toISOString();
  const written = typeof value === 'bigint' ? `${value}` : JSON.stringify(value);
  return written.length > 60 ? `${written.slice(0, 57)}…` : written;
}
