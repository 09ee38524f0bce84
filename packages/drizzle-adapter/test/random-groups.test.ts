import { FrameworkError, ShardedId, systemClock } from '@framework/core';
import type { Change, ChangeSet, TransactionManager } from '@framework/core/adapter';
import { seededRandom } from '@framework/testing';
import {
  Account,
  RandomExecutions,
  SuiteContext,
  Tag,
  decimal,
  firstShard,
  once,
} from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { proxied } from './fixtures/proxied.js';

const seed = Number(process.env['FC_SEED'] ?? Date.now() % 2 ** 31);
const modelCount = 8;
/** A marker in every message of a prepared statement that writes actions of a program. */
const writes = ['framework_write', 'framework_group'];

/** One change of a plan, to the model with the number `place`: an account if it is even, a tag if it is odd. */
interface Step {
  readonly place: number;
  /** The difference between the version that it expects and the right one: mostly 0. */
  readonly offset: number;
  /** Whether it adds the model, which violates the primary key if the model exists. */
  readonly adds: boolean;
  readonly events: number;
}

interface RandomPlan {
  readonly steps: readonly Step[];
  readonly key: string | undefined;
}

const rarely = <T>(usual: T, other: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.oneof({ arbitrary: fc.constant(usual), weight: 9 }, { arbitrary: other, weight: 1 });
const step: fc.Arbitrary<Step> = fc.record({
  place: fc.nat(modelCount - 1),
  offset: rarely(0, fc.integer({ min: -1, max: 1 })),
  adds: rarely(false, fc.constant(true)),
  events: fc.nat(2),
});
const randomPlan: fc.Arbitrary<RandomPlan> = fc.record({
  steps: fc.uniqueArray(step, { selector: ({ place }) => place, maxLength: 4 }),
  key: rarely<string | undefined>(undefined, fc.constantFrom('a', 'b', 'c')),
});
const batches = fc.array(fc.array(randomPlan, { minLength: 1, maxLength: 12 }), {
  minLength: 1,
  maxLength: 4,
});

describe(`random groups (seed ${seed})`, () => {
  const [grouped, single] = [new SuiteContext(), new SuiteContext()];
  beforeAll(async () => {
    grouped.open(await PgFixture.open(), { groupCommit: true });
    single.open(await PgFixture.open());
  });
  afterAll(() => Promise.all([grouped.fixture.close(), single.fixture.close()]));

  test('of executions end as if they ran one after the other', async () => {
    await fc.assert(
      fc.asyncProperty(batches, async (sequence) => {
        await Promise.all([grouped.fixture.clear(), single.fixture.clear()]);
        const models = new Models();
        for (const batch of sequence) {
          const plans = batch.map(({ steps }) => steps.map((each) => models.next(each, single)));
          const expected: string[] = [];
          for (const plan of plans) {
            const staged = await Promise.all(plan.map((make) => make()));
            expected.push(await codeOf(stage(single, staged)));
            models.staged.push(staged);
          }
          const actual = models.staged.splice(0).map((staged) => codeOf(stage(grouped, staged)));
          expect(await Promise.all(actual)).toEqual(expected);
        }
        expect(await contents(grouped)).toEqual(await contents(single));
      }),
      { seed, numRuns: 30 },
    );
  });

  test('of change sets are written as if they came one after the other', async () => {
    await fc.assert(
      fc.asyncProperty(batches, async (sequence) => {
        await Promise.all([grouped.fixture.clear(), single.fixture.clear()]);
        const versions = new Map<number, number>();
        const ids = Array.from({ length: modelCount }, (_unused, place) => newModel(place));
        for (const batch of sequence) {
          const sets = changeSets(batch, ids, { versions, suite: single });
          const expected = await inTurn(sets, single);
          expect(await together(sets, grouped)).toEqual(expected);
          for (const [place, model] of ids.entries()) versions.set(place, await storedVersion(single, model));
        }
        expect(await contents(grouped)).toEqual(await contents(single));
      }),
      { seed, numRuns: 60 },
    );
  });
});

/** The number of rounds of simultaneous actions that read and depend on each other. */
const interleavings = 20;

describe(`random executions (seed ${seed})`, () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  test.each([
    ['that works', 0],
    ['that loses connections', 0.3],
  ])('on a database %s lose nothing, repeat nothing and never stall', async (_what, lossShare) => {
    const { proxy, url } = await proxied(database);
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    await registry.ready();
    const manager = registry.transactionManager(firstShard);
    const isCommitted = manager.isCommitted.bind(manager);
    const suite = suiteOn(registry);
    for (let run = 0; run < interleavings; run++) {
      const random = seededRandom(seed + run);
      const misbehave = (): void => {
        // Some outcomes cannot be found out in time.
        manager.isCommitted = (unknown) => (random() < 0.6 ? Promise.reject(unknown) : isCommitted(unknown));
        proxy.judge = ({ direction, bytes }) => {
          const isWrite = direction === 'to-server' && writes.some((marker) => bytes.includes(marker));
          if (!isWrite || random() >= lossShare) return 'forward';
          return random() < 0.5 ? 'cut' : 'forward-and-cut';
        };
      };
      const store = (): Promise<Account> => suite.openAccount(firstShard, { balance: decimal('1000') });
      proxy.judge = () => 'forward';
      const faults = await new RandomExecutions(suite.fixture, random).run(store, misbehave);
      expect(faults, `FC_SEED=${seed + run}`).toEqual([]);
    }
  });
});

type AnyModel = Account | Tag;

/** The contents of a database, and the repositories that make its rows. */
interface Stored {
  readonly versions: ReadonlyMap<number, number>;
  readonly suite: SuiteContext;
}

function newModel(place: number): AnyModel {
  return place % 2 === 0 ? Account.blank(firstShard, systemClock.now()) : Tag.of(firstShard, 'new');
}

/** The models that executions stage, taken from a database that executes them one by one. */
class Models {
  /** The models that every plan of a batch has staged. */
  readonly staged: (readonly AnyModel[])[] = [];
  readonly #models = Array.from({ length: modelCount }, (_unused, place) => newModel(place));

  /** Returns the next version of a model, made when the previous one exists. */
  next({ place, offset, adds, events }: Step, suite: SuiteContext): () => Promise<AnyModel> {
    return async () => {
      const model = this.#models[place]!;
      const stored = await storedVersion(suite, model);
      const version = adds || stored === 0 ? 0 : Math.max(1, stored + offset);
      return changed(withVersion(model, version), events);
    };
  }
}

function withVersion(model: AnyModel, version: number): AnyModel {
  if (model instanceof Account) return model.variant({ version });
  return new Tag({ id: model.id, state: model.state, label: model.label, version });
}

function changed(model: AnyModel, events: number): AnyModel {
  if (model instanceof Tag) return model.rename(`after ${model.version}`);
  let account = model.adjust({ quota: BigInt(model.version) });
  for (let count = 0; count < events; count++) account = account.credit('1');
  return account;
}

async function storedVersion(suite: SuiteContext, model: AnyModel): Promise<number> {
  const reader = model instanceof Account ? suite.accounts : suite.fixture.tags;
  return (await reader.findById(model.id.value))?.version ?? 0;
}

function stage(suite: SuiteContext, models: readonly AnyModel[]): Promise<void> {
  return suite.stage((plan) => {
    for (const model of models) {
      if (model.version === 0) plan.add<AnyModel>(model);
      else plan.update<AnyModel>(model);
    }
  }, once);
}

async function codeOf(execution: Promise<unknown>): Promise<string> {
  try {
    await execution;
    return 'done';
  } catch (error) {
    return FrameworkError.find(error)?.code ?? String(error);
  }
}

/** Everything stored, without what differs between two identical runs. */
async function contents(suite: SuiteContext): Promise<unknown> {
  const [accounts, tags, events, keyCount] = await Promise.all([
    suite.accounts.findAll(),
    suite.fixture.tags.findAll(),
    suite.storedEvents(),
    suite.fixture.keyCount(firstShard),
  ]);
  return {
    accounts: accounts.map(({ id, version, quota, balance }) => [id.value, version, quota, balance]),
    tags: tags.map(({ id, version, label }) => [id.value, version, label]),
    histories: accounts.map(({ id }) =>
      events
        .filter(({ modelId }) => modelId === id.value)
        .map(({ modelVersion, ordinal, eventType, payload }) => [modelVersion, ordinal, eventType, payload]),
    ),
    records: events.filter(({ eventType }) => eventType === null).length,
    keyCount,
  };
}

/** The change sets of a batch, in which each change of a row continues the previous one. */
function changeSets(
  batch: readonly RandomPlan[],
  models: readonly AnyModel[],
  stored: Stored,
): readonly ChangeSet[] {
  const written = new Map<number, number>();
  const keys = new Set<string>();
  return batch.map(({ steps, key }, index) => {
    const changes = steps.map((each) => changeOf(each, models[each.place]!, written, stored));
    const isNewKey = key !== undefined && !keys.has(key);
    if (key !== undefined) keys.add(key);
    return changeSetOf(
      changes,
      steps.map(({ events }) => events),
      isNewKey ? key : undefined,
      index,
    );
  });
}

function changeOf(
  { place, offset, adds }: Step,
  model: AnyModel,
  written: Map<number, number>,
  { versions, suite }: Stored,
): Change {
  // In a group, only the first write of a row may expect a wrong version.
  const expected = written.get(place) ?? (adds ? 0 : Math.max(0, (versions.get(place) ?? 0) + offset));
  const next = changed(withVersion(model, expected + 1), 0);
  written.set(place, expected + 1);
  const kind = expected === 0 ? 'add' : 'update';
  if (next instanceof Account) {
    const { accounts: repository } = suite;
    return { kind, repository, model: next, expectedVersion: expected, row: repository.encode(next) };
  }
  const { tags: repository } = suite.fixture;
  return { kind, repository, model: next, expectedVersion: expected, row: repository.encode(next) };
}

function changeSetOf(
  changes: readonly Change[],
  eventCounts: readonly number[],
  key: string | undefined,
  index: number,
): ChangeSet {
  let ordinal = 0;
  const action = {
    id: newId(),
    name: 'TryAction',
    params: `{"index":${index}}`,
    namespace: 'random.groups',
    principal: 'tester',
    headers: '{}',
    startedDate: systemClock.now(),
  };
  const events = changes.flatMap(({ model }, place) =>
    Array.from({ length: eventCounts[place] ?? 0 }, () => ({
      id: newId(),
      ordinal: ordinal++,
      modelId: model.id.value,
      modelName: model.constructor.name,
      modelVersion: model.version,
      type: 'TriedEvent',
      payload: `{"text":"ünï \\\\ \\" {,}","version":${model.version}}`,
    })),
  );
  const record = key && {
    key,
    principal: 'tester',
    namespace: 'random.groups',
    fingerprint: `print ${key}`,
    result: '{"a":null}',
    lifetimeMs: 60_000,
  };
  return { shard: firstShard, action, changes, events, ...(record && { key: record }) };
}

function newId(): string {
  return ShardedId.generate(Object, firstShard).value;
}

async function inTurn(sets: readonly ChangeSet[], suite: SuiteContext): Promise<readonly string[]> {
  return writeInTurn(sets, suite.fixture.databases.transactionManager(firstShard), new Set());
}

async function writeInTurn(
  sets: readonly ChangeSet[],
  manager: TransactionManager,
  lost: Set<string>,
): Promise<string[]> {
  const outcomes: string[] = [];
  for (const set of sets) outcomes.push(await writeOne(set, manager, lost));
  return outcomes;
}

/** A change set that follows an unwritten one is stale. */
async function writeOne(set: ChangeSet, manager: TransactionManager, lost: Set<string>): Promise<string> {
  const ids = set.changes.map(({ model }) => model.id.value);
  let outcome = 'stale-record';
  if (!ids.some((id) => lost.has(id))) {
    try {
      outcome = await manager.persist(set);
    } catch (error) {
      outcome = FrameworkError.find(error)?.code ?? String(error);
    }
  }
  if (outcome !== 'written') for (const id of ids) lost.add(id);
  return outcome;
}

/** What undoes a whole group: a violation, and a stale row of a plan whose key was free. */
const groupFailures = new Set<string | undefined>(['constraint-violation', 'storage-failure']);

/** Writes a group, and then, one by one, the change sets that the group could not hold. */
async function together(sets: readonly ChangeSet[], suite: SuiteContext): Promise<readonly string[]> {
  const manager = suite.fixture.databases.transactionManager(firstShard);
  const lost = new Set<string>();
  try {
    const outcomes = await manager.persistAll(sets);
    const codes: string[] = [];
    for (const [index, outcome] of outcomes.entries()) {
      const set = sets[index]!;
      if (outcome === 'single') codes.push(await writeOne(set, manager, lost));
      else codes.push(typeof outcome === 'string' ? outcome : outcome.code);
      if (codes.at(-1) !== 'written') for (const { model } of set.changes) lost.add(model.id.value);
    }
    return codes;
  } catch (error) {
    // A group that is rejected is not written at all.
    if (!groupFailures.has(FrameworkError.find(error)?.code)) throw error;
    return writeInTurn(sets, manager, lost);
  }
}
