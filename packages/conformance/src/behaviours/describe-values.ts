import { systemClock } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { Account, type AccountFields, Tag, decimal } from '../account.js';
import type { LimitedValue } from '../storage-fixture.js';
import { type SuiteContext, otherDatabaseShard, changeSetOf, firstShard } from '../suite-context.js';

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
    new Date('0001-01-01T00:00:00.000Z'),
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

/** Registers tests which check that stored values are read back unchanged. */
export function describeValues(context: SuiteContext): void {
  describe('the round trip', () => {
    test.each(cases)('keeps a $field of $shown', async ({ field, value }) => {
      expect(await readBack(context, field, value)).toEqual(Array.from({ length: 6 }, () => value));
    });

    test('keeps the contents of an event', async () => {
      const account = await context.openAccount(firstShard, { owner: text, balance: largest });
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

/** Stores a value in a new row and in an updated one, and returns what every way of reading makes of them. */
async function readBack(
  context: SuiteContext,
  field: keyof AccountFields,
  value: unknown,
): Promise<readonly unknown[]> {
  const added = await context.openAccount(firstShard, { [field]: value });
  const updated = await context.openAccount(otherDatabaseShard);
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

type Case = readonly [title: string, fields: Partial<AccountFields>, path: string];

const refusedValues: readonly Case[] = [
  ['a number that is NaN', { score: Number.NaN }, 'Account.score'],
  ['an infinite number', { score: Number.POSITIVE_INFINITY }, 'Account.score'],
  ['an invalid date', { dueDate: new Date(Number.NaN) }, 'Account.dueDate'],
  ['a NUL character in a text', { note: 'a\u0000b' }, 'Account.note'],
  ['a lone surrogate in a text', { note: '\ud83d' }, 'Account.note'],
  ['a NUL character in JSON', { settings: { deep: ['\u0000'] } }, 'Account.settings.deep[0]'],
  ['a NUL character in a key of JSON', { settings: { '\u0000': 1 } }, 'Account.settings'],
  ['a number in JSON that is NaN', { settings: { rate: Number.NaN } }, 'Account.settings.rate'],
];

const limitedValues: readonly (readonly [...Case, limited: LimitedValue])[] = [
  ['a distant year', { dueDate: new Date('+012345-01-01T00:00:00Z') }, 'Account.dueDate', 'distant-years'],
  [
    'a decimal with too many digits before the decimal point',
    { balance: `${'9'.repeat(21)}.0` },
    'Account.balance',
    'long-decimals',
  ],
  [
    'a decimal with too many digits after the decimal point',
    { balance: `0.${'1'.repeat(19)}` },
    'Account.balance',
    'long-decimals',
  ],
  ['a decimal with an exponent', { balance: '1e3' }, 'Account.balance', 'other-decimals'],
  ['a decimal that is not a number', { balance: 'NaN' }, 'Account.balance', 'other-decimals'],
  ['an empty decimal', { balance: '' }, 'Account.balance', 'other-decimals'],
  ['a decimal without digits', { balance: '-' }, 'Account.balance', 'other-decimals'],
  ['a decimal that is only a decimal point', { balance: '.' }, 'Account.balance', 'other-decimals'],
  ['an integer of more than 64 bits', { quota: 2n ** 63n }, 'Account.quota', 'large-integers'],
  ['a missing text', { owner: undefined as unknown as string }, 'Account.owner', 'missing-fields'],
];

/** Registers tests which check that a value is refused when it is staged if it would not be read back unchanged. */
export function describeUnstorableValues(context: SuiteContext): void {
  describe('staging', () => {
    test.each(refusedValues)('refuses %s', async (_title, fields, path) => {
      expect(await storedOrRefusal(context, fields)).toMatchObject(refusalAt(path));
      expect(await context.accounts.count()).toBe(0);
    });

    test.each(limitedValues)('refuses %s, or returns it unchanged', async (_title, fields, path, limited) => {
      const isRefused = context.fixture.cannotHold.has(limited);
      const outcome = await storedOrRefusal(context, fields);
      expect(outcome).toMatchObject(isRefused ? refusalAt(path) : fields);
      expect(await context.accounts.count()).toBe(isRefused ? 0 : 1);
    });

    test('refuses an event whose payload would not be read back unchanged', async () => {
      const account = await context.openAccount();
      const staged = context.stage((plan) => plan.update(account.annotate('a\u0000b')));
      await expect(staged).rejects.toMatchObject({ code: 'unstorable-value' });
      expect(await context.accounts.getById(account.id)).toEqual(account);
    });

    test('leaves the rest of the plan usable after a refusal', async () => {
      await context.stage((plan) => {
        const unstorable = Account.open(firstShard, systemClock.now(), { score: Number.NaN });
        expect(() => plan.add(unstorable)).toThrow(
          expect.objectContaining({ code: 'unstorable-value' }) as Error,
        );
        plan.add(Account.open(firstShard, systemClock.now()));
      });
      expect(await context.accounts.count()).toBe(1);
      expect(await context.storedEvents()).toMatchObject([{ ordinal: 0 }]);
    });
  });
}

/** The account with these fields as it is read back, or the error from staging it. */
async function storedOrRefusal(context: SuiteContext, fields: Partial<AccountFields>): Promise<unknown> {
  const account = Account.blank(firstShard, systemClock.now(), fields);
  let refusal: unknown;
  await context.stage((plan) => {
    try {
      plan.add(account);
    } catch (error) {
      refusal = error;
    }
  });
  return refusal ?? context.accounts.getById(account.id);
}

function refusalAt(path: string): object {
  return { code: 'unstorable-value', path: expect.stringContaining(path) as unknown };
}

/** Registers tests which check that a change set leaves nothing behind if the database refuses it. */
export function describeRefusals(context: SuiteContext): void {
  describe('a refused change set', () => {
    test('is stale and writes nothing when an added id already exists', async () => {
      const account = await context.openAccount();
      const other = await context.openAccount();
      const before = await context.contents();
      const refused = context.stage((plan) => {
        plan.update(other.credit('1'));
        plan.add(Account.blank(firstShard, systemClock.now()).variant({ id: account.id }));
        plan.add(Tag.of(firstShard, 'beside'));
      });
      await expect(refused).rejects.toMatchObject({
        code: 'stale-record',
        model: 'Account',
        id: account.id.value,
        expectedVersion: 0,
      });
      expect(await context.contents()).toEqual(before);
    });

    test('runs again and finds the row when another execution has added it meanwhile', async () => {
      const account = Account.open(firstShard, systemClock.now());
      const addOrCredit = () =>
        context.stage(async (plan) => {
          const found = await context.accounts.findById(account.id);
          if (found === undefined) plan.add(account);
          else plan.update(found.credit('1'));
        });
      await Promise.all(Array.from({ length: 4 }, addOrCredit));
      expect(await context.accounts.getById(account.id)).toMatchObject({ version: 4 });
    });

    test('leaves neither state nor event when an event row is invalid', async () => {
      const account = await context.openAccount();
      const before = await context.contents();
      const next = account.credit('5').variant({ version: 2, events: [] });
      const broken = changeSetOf(context.accounts, next, ['{}', 'no JSON']);
      const manager = context.fixture.databases.transactionManager(firstShard);
      await expect(manager.persist(broken)).rejects.toMatchObject({
        code: 'storage-failure',
      });
      expect(await context.contents()).toEqual(before);
    });
  });
}
