// @module-tag postgres
import { AsyncLocalStorage } from 'node:async_hooks';

import {
  Action,
  ActionExecutor,
  type DatabaseRegistry,
  Entity,
  type NewEntity,
  type Plan,
  ShardedId,
  systemClock,
} from '@framework/core';
import { firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { bigint, integer, json, jsonb, numeric, pgTable, real, text, timestamp } from 'drizzle-orm/pg-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { PgRepository, entityColumns } from '../src/index.js';
import { openRegistry } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

/** What a device measures; it writes to the table itself. */
class Probe extends Entity<Probe, ShardedId<Probe>, 'ON'> {
  readonly count: number;
  readonly seen: Date;
  readonly rate: number;
  readonly total: number;
  readonly report: object;
  readonly draft: object;
  readonly note: string | undefined;

  constructor(fields: NewEntity<Probe>) {
    super(fields);
    this.count = fields.count;
    // A copy, as in a model that protects its dates from changes.
    this.seen = new Date(fields.seen);
    this.rate = fields.rate;
    this.total = fields.total;
    this.report = fields.report;
    this.draft = fields.draft;
    this.note = fields.note;
  }

  with(changes: Partial<Omit<Probe, 'id' | 'state' | 'version'>>): Probe {
    return this.copy(changes);
  }
}

const probes = pgTable('probes', {
  ...entityColumns(Probe),
  count: integer('count').notNull(),
  seen: timestamp('seen', { withTimezone: true }).notNull(),
  rate: numeric('rate', { mode: 'number' }).notNull(),
  total: bigint('total', { mode: 'number' }).notNull(),
  report: jsonb('report').$type<object>().notNull(),
  draft: json('draft').$type<object>().notNull(),
  note: text('note'),
});

/** What the device writes, which a model holds only approximately. */
const measured = {
  seen: '2026-01-01 00:00:00.123456+00',
  rate: '0.12345678901234567891',
  total: '9007199254740991',
  report: '{"n": 1234567890.12345678901234567890, "scale": 1.500}',
  draft: '{"n":1e2,   "n": 0.12345678901234567891}',
};

/** The same with local times and numbers of single precision. */
class Station extends Entity<Station, ShardedId<Station>, 'ON'> {
  readonly count: number;
  readonly local: Date;
  readonly heat: number;

  constructor(fields: NewEntity<Station>) {
    super(fields);
    this.count = fields.count;
    this.local = fields.local;
    this.heat = fields.heat;
  }

  next(): Station {
    return this.copy({ count: this.count + 1 });
  }
}

const stations = pgTable('stations', {
  ...entityColumns(Station),
  count: integer('count').notNull(),
  local: timestamp('local').notNull(),
  heat: real('heat').notNull(),
});

const staging = new AsyncLocalStorage<(plan: Plan) => unknown>();

class StageAction extends Action<object> {
  protected async perform(): Promise<void> {
    await staging.getStore()?.(this.plan());
  }
}

let database: TestDatabase;
let registry: DatabaseRegistry;
let repository: PgRepository<Probe, typeof probes>;
beforeAll(async () => {
  database = await createTestDatabase();
  const entity = 'id uuid primary key, state text not null, version bigint not null, count integer not null';
  await query(
    database.url,
    `create table probes (${entity}, seen timestamptz not null, rate numeric not null, total bigint not null,
       report jsonb not null, draft json not null, note text);
     create table oddities (${entity}, price numeric not null, rate numeric not null, weight real not null, report jsonb);
     create table stations (${entity}, local timestamp not null, heat real not null)`,
  );
});
afterAll(() => database.drop());
beforeEach(async () => {
  registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await registry.ready();
  repository = new PgRepository({ model: Probe, table: probes, databases: registry });
});

describe.each([false, true])('an update, with group commit: %s', (groupCommit) => {
  let executor: ActionExecutor;
  beforeEach(() => (executor = executorOf(repository, groupCommit)));

  test('keeps what it does not change to the last digit and microsecond', async () => {
    const id = await written();
    await update(id, (probe) => probe.with({ count: 1 }));
    await update(id, (probe) => probe.with({ count: 2 }).with({ note: 'seen' }));
    expect(await textsOf(id)).toEqual({ ...measured, count: '2', note: 'seen', version: '3' });
  });

  test('keeps it through versions that are not committed yet', async () => {
    const id = await written();
    const increase = () => update(id, (probe) => probe.with({ count: probe.count + 1 }));
    await increase();
    await Promise.all(Array.from({ length: 20 }, increase));
    expect(await textsOf(id)).toEqual({ ...measured, count: '21', note: null, version: '22' });
  });

  test('writes what it changes', async () => {
    const id = await written();
    const seen = new Date('2026-01-01T00:00:00.124Z');
    await update(id, (probe) => probe.with({ seen, rate: 0.25, report: { n: 2 }, draft: {}, total: 7 }));
    expect(await textsOf(id)).toMatchObject({
      seen: '2026-01-01 00:00:00.124+00',
      rate: '0.25',
      report: '{"n": 2}',
      draft: '{}',
      total: '7',
    });
  });

  test('writes a value that it has from another model', async () => {
    const { rate, seen } = await repository.getById(await written());
    const id = await written("rate = 0.5, seen = '2026-02-02'");
    await update(id, (probe) => probe.with({ rate, seen }));
    const texts = { rate: '0.12345678901234568', seen: '2026-01-01 00:00:00.123+00' };
    expect(await textsOf(id)).toMatchObject(texts);
  });

  async function update(id: ShardedId<Probe>, change: (probe: Probe) => Probe): Promise<void> {
    await stage(executor, async (plan) => plan.update(change(await repository.getById(id))));
  }
});

test('an update keeps local times and numbers of single precision', async () => {
  const id = ShardedId.generate(Station, firstShard);
  const texts = {
    local: '2026-01-01 00:00:00.123456',
    heat: '20.123457',
  };
  const values = Object.values(texts).map((value) => `'${value}'`);
  await query(database.url, `insert into stations values ('${id.value}', 'ON', 1, 0, ${values.join(', ')})`);
  const stationsOfDevice = new PgRepository({ model: Station, table: stations, databases: registry });
  await stage(executorOf(stationsOfDevice), async (plan) =>
    plan.update((await stationsOfDevice.getById(id)).next()),
  );
  const found = await query(utcUrl(), `select local::text, heat::text, count from stations`);
  expect(found).toEqual([{ ...texts, count: 1 }]);
});

/** One value of each kind that a model cannot hold exactly, or could not write itself. */
class Oddity extends Entity<Oddity, ShardedId<Oddity>, 'ON'> {
  readonly count: number;
  readonly price: number;
  readonly rate: number;
  readonly weight: number;
  readonly report: object | undefined;

  constructor(fields: NewEntity<Oddity>) {
    super(fields);
    this.count = fields.count;
    this.price = fields.price;
    this.rate = fields.rate;
    this.weight = fields.weight;
    this.report = fields.report;
  }

  with(changes: Partial<Omit<Oddity, 'id' | 'state' | 'version'>>): Oddity {
    return this.copy(changes);
  }
}

const oddities = pgTable('oddities', {
  ...entityColumns(Oddity),
  count: integer('count').notNull(),
  price: numeric('price', { mode: 'number' }).notNull(),
  rate: numeric('rate', { mode: 'number' }).notNull(),
  weight: real('weight').notNull(),
  report: jsonb('report').$type<object>(),
});

describe('a value that its model could not write', () => {
  const odd = {
    price: '1.23456789012345678901',
    rate: '0.00000012',
    weight: '1e-45',
    report: 'null',
  };
  let odds: PgRepository<Oddity, typeof oddities>;
  let executor: ActionExecutor;
  beforeEach(() => {
    odds = new PgRepository({ model: Oddity, table: oddities, databases: registry });
    executor = executorOf(odds);
  });

  test('is kept by an update of another column', async () => {
    const id = await stored();
    await update(id, { count: 1 });
    expect(await rowOf(id)).toEqual({ ...odd, count: '1', version: '2' });
  });

  test('can be replaced', async () => {
    const id = await stored();
    await update(id, { price: 5, rate: 5, weight: 0.5, report: { a: 1 } });
    expect(await rowOf(id)).toMatchObject({ price: '5', rate: '5', weight: '0.5', report: '{"a": 1}' });
  });

  test('does not return after it was replaced', async () => {
    const id = await stored();
    let staged: Oddity | undefined;
    const next = async (price: number): Promise<void> =>
      stage(executor, async (plan) => {
        staged = plan.update((staged ?? (await odds.getById(id))).with({ price }));
      });
    await next(7);
    await next(Number(odd.price));
    expect(await rowOf(id)).toMatchObject({ price: '1.2345678901234567', version: '3' });
  });

  async function stored(): Promise<ShardedId<Oddity>> {
    const id = ShardedId.generate(Oddity, firstShard);
    const values = Object.values(odd).map((value) => `'${value}'`);
    await query(
      database.url,
      `insert into oddities values ('${id.value}', 'ON', 1, 0, ${values.join(', ')})`,
    );
    return id;
  }

  async function update(
    id: ShardedId<Oddity>,
    changes: Partial<Omit<Oddity, 'id' | 'state' | 'version'>>,
  ): Promise<void> {
    await stage(executor, async (plan) => plan.update((await odds.getById(id)).with(changes)));
  }

  async function rowOf(id: ShardedId<Oddity>): Promise<unknown> {
    const names = [...Object.keys(odd), 'count', 'version'].map((name) => `"${name}"::text`);
    const [row] = await query(utcUrl(), `select ${names.join(', ')} from oddities where id = '${id.value}'`);
    return row;
  }
});

test('a constructor that drops a field of the row is refused, before an update would delete the column', async () => {
  class Forgetful extends Entity<Forgetful, ShardedId<Forgetful>, 'ON'> {
    declare readonly note: string | undefined;
  }
  const table = pgTable('notes', { ...entityColumns(Forgetful), note: text('note') });
  await query(
    database.url,
    'create table notes (id uuid primary key, state text not null, version bigint not null, note text)',
  );
  const id = ShardedId.generate(Forgetful, firstShard);
  await query(database.url, `insert into notes values ('${id.value}', 'ON', 1, 'precious')`);
  const notes = new PgRepository({ model: Forgetful, table, databases: registry });
  await expect(notes.getById(id)).rejects.toMatchObject({
    code: 'invariant-violation',
    message: 'The constructor of Forgetful drops note, which the next update would delete: assign it',
  });
});

test('an update of the model that an addition has returned keeps what the database has filled in', async () => {
  class Tagged extends Entity<Tagged, ShardedId<Tagged>, 'ON'> {
    readonly count: number;
    readonly tags: readonly string[] | undefined;

    constructor(fields: NewEntity<Tagged>) {
      super(fields);
      this.count = fields.count;
      this.tags = fields.tags;
    }

    next(tags = this.tags): Tagged {
      return this.copy({ count: this.count + 1, tags });
    }
  }
  const tagged = pgTable('tagged', {
    ...entityColumns(Tagged),
    count: integer('count').notNull(),
    tags: text('tags').array().default(['a', 'b']),
  });
  await query(
    database.url,
    `create table tagged (id uuid primary key, state text not null, version bigint not null, count integer not null,
       tags text[] default '{a,b}')`,
  );
  const tags = new PgRepository({ model: Tagged, table: tagged, databases: registry });
  const executor = executorOf(tags);
  const id = ShardedId.generate(Tagged, firstShard);
  let last = new Tagged({ id, state: 'ON', count: 0, tags: undefined });
  await stage(executor, (plan) => (last = plan.add(last)));
  await stage(executor, (plan) => (last = plan.update(last.next())));
  await stage(executor, (plan) => (last = plan.update(last.next())));
  expect(await tags.getById(id)).toMatchObject({ count: 2, tags: ['a', 'b'] });
  await stage(executor, (plan) => (last = plan.update(last.next(['c']))));
  expect(await tags.getById(id)).toMatchObject({ tags: ['c'] });
});

test('an update of a model from a page keeps what it does not change', async () => {
  const id = await written("note = 'page'");
  const { items } = await repository.findPage({ limit: 1_000 });
  const found = items.find((probe) => probe.id.equals(id))!;
  await stage(executorOf(repository), (plan) => plan.update(found.with({ count: 1 })));
  expect(await textsOf(id)).toEqual({ ...measured, count: '1', note: 'page', version: '2' });
});

function executorOf(
  stored: ConstructorParameters<typeof ActionExecutor>[0]['repositories'][number],
  groupCommit = false,
): ActionExecutor {
  return new ActionExecutor({
    namespace: 'probes',
    databases: registry,
    repositories: [stored],
    actions: [new StageAction(systemClock)],
    groupCommit,
    modelLocks: false,
    retry: { attemptsMax: 100, backoffMaxMs: 5 },
  });
}

async function stage(executor: ActionExecutor, work: (plan: Plan) => unknown): Promise<void> {
  await staging.run(work, () => executor.execute({ name: 'probe' }, StageAction, {}));
}

/** A row that the device has written, and changed once. */
async function written(changes = 'count = 0'): Promise<ShardedId<Probe>> {
  const id = ShardedId.generate(Probe, firstShard);
  const values = Object.values(measured).map((value) => `'${value}'`);
  await query(
    database.url,
    `insert into probes values ('${id.value}', 'ON', 1, 0, ${values.join(', ')});
     update probes set ${changes} where id = '${id.value}'`,
  );
  return id;
}

async function textsOf(id: ShardedId<Probe>): Promise<unknown> {
  const names = [...Object.keys(measured), 'count', 'note', 'version'].map((name) => `${name}::text`);
  const [row] = await query(utcUrl(), `select ${names.join(', ')} from probes where id = '${id.value}'`);
  return row;
}

function utcUrl(): string {
  return `${database.url}?options=${encodeURIComponent('-c timezone=UTC')}`;
}
