import { systemClock } from '@framework/core';
import {
  Account,
  type AccountFields,
  type Json,
  SuiteContext,
  firstShard,
  once,
  otherDatabaseShard,
} from '@framework/conformance';
import { sql } from 'drizzle-orm';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pgManager } from '../src/pg-transaction-manager.js';
import { groupCommit } from './fixtures/group-commit.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { readableJson } from './fixtures/readable-json.js';

const accountCount = 6;
const seed = Number(process.env['FC_SEED'] ?? Date.now() % 2 ** 31);

/** One staged change of the account with the number `place`: an addition if it does not exist yet, otherwise an update. */
interface Step {
  readonly place: number;
  readonly amounts: readonly number[];
  /** Values of other columns, each of which must be read back unchanged. */
  readonly values: Partial<AccountFields>;
  /** Stages the version before the last one, if there is one. */
  readonly stale: boolean;
  /** Another program adds as many microseconds to the due date, before the account is read for this step. */
  readonly microseconds: number | null;
}

/** The expected contents of the database: one account, and every version that it had. */
interface Expected {
  readonly versions: Account[];
  /** The microseconds of the due date in the database, and in the row from which the last version was made. */
  stored: number;
  known: number;
  readonly events: (readonly [version: number, type: string, balance: string])[];
}

const step: fc.Arbitrary<Step> = fc.record({
  place: fc.nat(accountCount - 1),
  amounts: fc.array(fc.integer({ min: -9, max: 9 }), { maxLength: 3 }),
  values: fc.record(
    {
      quota: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
      // JSON and PostgreSQL have only one zero.
      score: fc.double({ noNaN: true, noDefaultInfinity: true }).map((score) => score + 0),
      dueDate: fc.date({ noInvalidDate: true, min: new Date('0100-01-01'), max: new Date('9999-12-31') }),
      note: fc.option(fc.string({ unit: 'grapheme' }).filter((text) => !text.includes('\u0000'))),
      settings: readableJson.filter(isStorable).map((json) => JSON.parse(JSON.stringify(json)) as Json),
    },
    { requiredKeys: [] },
  ),
  microseconds: fc.option(fc.integer({ min: 1, max: 999 }), { freq: 3 }),
  stale: fc.boolean().chain((maybe) => (maybe ? fc.nat(3).map((dice) => dice === 0) : fc.constant(false))),
});
const plans = fc.array(fc.uniqueArray(step, { selector: ({ place }) => place, maxLength: accountCount }), {
  maxLength: 12,
});

describe(`random plans over two shards (seed ${seed})`, () => {
  const suite = new SuiteContext();
  beforeAll(async () => suite.open(await PgFixture.open(), { groupCommit }));
  afterAll(() => suite.fixture.close());

  test('leave the rows and events that a reference model predicts', async () => {
    await fc.assert(
      fc.asyncProperty(plans, async (sequence) => {
        await suite.fixture.clear();
        const expected = Array.from({ length: accountCount }, (): Expected => ({
          versions: [],
          stored: 0,
          known: 0,
          events: [],
        }));
        for (const plan of sequence) await apply(suite, plan, expected);
        const stored = expected.flatMap(({ versions }) => versions.slice(-1));
        expect(byId(await suite.accounts.findAll())).toEqual(byId(stored));
        for (const { versions, stored: microseconds, events } of expected) {
          expect(await eventsOf(suite, versions[0])).toEqual(events);
          expect(await microsecondsOf(suite, versions[0])).toBe(microseconds);
        }
      }),
      { seed, numRuns: 40 },
    );
  });
});

/** Executes the plan, and predicts its result: a shard with a stale row is not changed. */
async function apply(
  suite: SuiteContext,
  steps: readonly Step[],
  expected: readonly Expected[],
): Promise<void> {
  const changes = await Promise.all(steps.map((each) => changeOf(suite, each, expected[each.place]!)));
  let staged: readonly Account[] = [];
  const outcome: unknown = await suite
    .stage(
      (plan) => {
        staged = changes.map(({ next }) => (next.version === 0 ? plan.add(next) : plan.update(next)));
      },
      { allowCrossShard: true, ...once },
    )
    .catch((error: unknown) => error);
  const failed = [firstShard, otherDatabaseShard].filter((shard) =>
    changes.some((change) => change.stale && change.shard === shard),
  );
  const first = [firstShard, otherDatabaseShard].find((shard) =>
    changes.some((change) => change.shard === shard),
  );
  const code = failed.length === 0 ? undefined : failed.includes(first!) ? 'stale-record' : 'partial-commit';
  expect((outcome as { readonly code?: string } | undefined)?.code).toBe(code);
  changes.forEach(({ shard, target, next, known }, index) => {
    // Shards commit in order: nothing is written after the first that fails.
    if (failed.includes(shard) || failed.includes(firstShard)) return;
    target.stored = target.known = known;
    target.versions.push(staged[index]!);
    target.events.push(...next.events.map((event) => described(event, staged[index]!.version)));
  });
}

async function changeOf(
  suite: SuiteContext,
  { place, amounts, values, stale, microseconds }: Step,
  target: Expected,
) {
  const shard = place % 2 === 0 ? firstShard : otherDatabaseShard;
  const isStale = stale && target.versions.length > 1;
  const kept = target.versions.at(isStale ? -2 : -1);
  const isRead = kept !== undefined && microseconds !== null && !isStale;
  if (isRead) {
    await addMicroseconds(suite, kept, microseconds);
    target.stored = microseconds;
  }
  const from = isRead
    ? await suite.accounts.getById(kept.id)
    : (kept ?? Account.open(shard, systemClock.now()));
  const credited = amounts.reduce((account, amount) => account.credit(String(amount)), from);
  const next = credited.adjust(values);
  const isMoved = next.dueDate.getTime() !== from.dueDate.getTime();
  const known = isMoved ? 0 : isRead ? microseconds : target.known;
  return { shard, target, stale: isStale, next, known };
}

async function addMicroseconds(suite: SuiteContext, { id }: Account, count: number): Promise<void> {
  const { db } = pgManager(suite.fixture.databases.transactionManager(id.resolveShardIdentifier()));
  await db.execute(
    sql`update accounts set due_date = date_trunc('milliseconds', due_date) + ${count} * interval '1 microsecond'
        where id = ${id.value}`,
  );
}

async function microsecondsOf(suite: SuiteContext, account: Account | undefined): Promise<number> {
  if (account === undefined) return 0;
  const { db } = pgManager(suite.fixture.databases.transactionManager(account.id.resolveShardIdentifier()));
  const { rows } = await db.execute<{ count: number }>(
    sql`select (extract(microseconds from due_date)::bigint % 1000)::integer as count from accounts
        where id = ${account.id.value}`,
  );
  return rows[0]?.count ?? -1;
}

/** Text in PostgreSQL cannot contain NUL, and the column cannot be null. */
function isStorable(json: unknown): boolean {
  return json !== null && !JSON.stringify(json).includes('\\u0000');
}

function described(event: object, version: number): readonly [number, string, string] {
  const { newBalance, balance } = event as { readonly newBalance?: string; readonly balance?: string };
  return [version, event.constructor.name, newBalance ?? balance ?? ''];
}

async function eventsOf(suite: SuiteContext, account: Account | undefined): Promise<readonly unknown[]> {
  if (account === undefined) return [];
  const events = await suite.storedEvents(account.id.resolveShardIdentifier());
  return events
    .filter(({ modelId }) => modelId === account.id.value)
    .map(({ modelVersion, eventType, payload }) => {
      const { newBalance, balance } = payload as { readonly newBalance?: string; readonly balance?: string };
      return [modelVersion, eventType, newBalance ?? balance];
    });
}

function byId(accounts: readonly Account[]): readonly Account[] {
  return accounts.toSorted((one, other) => (one.id.value < other.id.value ? -1 : 1));
}
