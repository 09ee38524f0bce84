// @module-tag postgres
import {
  Action,
  ActionExecutor,
  type DatabaseRegistry,
  Entity,
  type NewEntity,
  type Principal,
  ShardedId,
  systemClock,
} from '@framework/core';
import { firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { eq } from 'drizzle-orm';
import { bigint, customType, jsonb, pgTable, text } from 'drizzle-orm/pg-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { PgRepository, entityColumns } from '../src/index.js';
import { openRegistry } from './fixtures/open-registry.js';
import { persist } from './fixtures/persist.js';
import { query } from './fixtures/query.js';

class Crate extends Entity<Crate, ShardedId<Crate>, string> {
  readonly label: string | undefined;
  readonly token: string | undefined;
  readonly serial: number | undefined;

  constructor(fields: NewEntity<Crate>) {
    super(fields);
    this.label = fields.label;
    this.token = fields.token;
    this.serial = fields.serial;
  }

  with(fields: Partial<NewEntity<Crate>>): Crate {
    return new Crate(Object.assign({}, this, fields));
  }
}

const crates = pgTable('crates', {
  ...entityColumns(Crate),
  label: text('label').default('no label'),
  token: text('token').$defaultFn(() => crypto.randomUUID()),
  serial: bigint('serial', { mode: 'number' }).generatedAlwaysAsIdentity(),
});

class Parcel extends Entity<Parcel, ShardedId<Parcel>, string> {
  readonly token: string | undefined;
  readonly content: unknown;

  constructor(fields: NewEntity<Parcel>) {
    super(fields);
    this.token = fields.token;
    this.content = fields.content;
  }
}

const parcels = pgTable('parcels', {
  ...entityColumns(Parcel),
  token: text('token').$defaultFn(() => crypto.randomUUID()),
  content: jsonb('content'),
});

let database: TestDatabase;
let databases: DatabaseRegistry;
beforeAll(async () => {
  database = await createTestDatabase();
  await query(
    database.url,
    `create table crates (id uuid primary key, state text not null, version bigint not null,
       label text default 'no label', token text, serial bigint generated always as identity);
     create table parcels (id uuid primary key, state text not null, version bigint not null,
       token text, content jsonb);
     create table spots (id uuid primary key, state text not null, version bigint not null, place bytea)`,
  );
});
afterAll(() => database.drop());
beforeEach(async () => {
  databases = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await databases.ready();
});

async function store(label?: string, token?: string) {
  const repository = new PgRepository({ model: Crate, table: crates, databases });
  const id = ShardedId.generate(Crate, firstShard);
  const crate = new Crate({ id, state: 'NEW', version: 1, label, token, serial: undefined });
  await persist(databases, repository, crate);
  return { repository, crate: await repository.getById(id) };
}

function parcel(version: number): Parcel {
  const id = ShardedId.generate(Parcel, firstShard);
  return new Parcel({ id, state: 'NEW', version, token: undefined, content: { a: [1, '2'], b: null } });
}

describe('a model whose fields are the columns of its table', () => {
  test('is updated even if the database numbers its rows', async () => {
    const { repository, crate } = await store('one');
    expect(crate.serial).toBeGreaterThan(0);
    const next = crate.with({ version: 2, label: 'other' });
    await persist(databases, repository, next);
    expect(await repository.getById(crate.id)).toEqual(next);
  });

  test("is stored without its removed values, whatever the table's defaults are", async () => {
    const { repository, crate } = await store('one', 'two');
    const cleared = crate.with({ version: 2, label: undefined, token: undefined });
    await persist(databases, repository, cleared);
    expect(await repository.getById(crate.id)).toEqual(cleared);
  });

  test('takes the defaults of its table when it is added', async () => {
    const { crate } = await store();
    expect(crate).toMatchObject({
      label: 'no label',
      token: expect.stringMatching(/^[0-9a-f-]{36}$/) as string,
    });
  });
});

describe('a document', () => {
  test('is read as Drizzle reads it', async () => {
    const repository = new PgRepository({ model: Parcel, table: parcels, databases });
    const { id, content } = parcel(1);
    await persist(databases, repository, new Parcel({ id, state: 'NEW', version: 1, token: 'a', content }));
    const own = repository.db(firstShard).select().from(parcels).where(eq(parcels.id, id));
    expect(await own).toMatchObject([{ content }]);
    expect(await repository.getById(id)).toMatchObject({ content });
    expect(await repository.findAllByIds([id])).toMatchObject([{ content }]);
  });

  test('and a generated default are the same in the answer to a repeat', async () => {
    const repository = new PgRepository({ model: Parcel, table: parcels, databases });
    const sent = parcel(0);
    class SendParcelAction extends Action<{ readonly count: number }, Parcel> {
      static readonly result = Parcel;

      protected async perform(): Promise<Parcel> {
        return this.plan().add(sent);
      }
    }
    const executor = new ActionExecutor({
      namespace: 'adapter.test',
      databases,
      repositories: [repository],
      actions: [new SendParcelAction(systemClock)],
    });
    const principal: Principal = { name: 'tester' };
    const send = (): Promise<Parcel> =>
      executor.execute(principal, SendParcelAction, { count: 1 }, { idempotencyKey: 'key-1' });
    const first = await send();
    expect(await send()).toEqual(first);
    expect((await repository.getById(sent.id)).token).toMatch(/^[0-9a-f-]{36}$/);
  });
});

test('two executions that read a row together share no bytes', async () => {
  class Spot extends Entity<Spot, ShardedId<Spot>, string> {
    readonly place: Buffer | undefined;

    constructor(fields: NewEntity<Spot>) {
      super(fields);
      this.place = fields.place;
    }
  }
  const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });
  const table = pgTable('spots', { ...entityColumns(Spot), place: bytes('place') });
  const repository = new PgRepository({ model: Spot, table, databases });
  const id = ShardedId.generate(Spot, firstShard);
  await persist(databases, repository, new Spot({ id, state: 'NEW', version: 1, place: Buffer.from('ab') }));
  class LookAction extends Action<{ readonly id: ShardedId<Spot> }> {
    readonly seen: Spot[] = [];

    protected async perform(_principal: Principal, params: { readonly id: ShardedId<Spot> }): Promise<void> {
      this.seen.push(await repository.getById(params.id));
    }
  }
  const action = new LookAction(systemClock);
  const executor = new ActionExecutor({
    namespace: 'adapter.test',
    databases,
    repositories: [repository],
    actions: [action],
    modelLocks: false,
  });
  await Promise.all([1, 2, 3].map(() => executor.execute({ name: 'tester' }, LookAction, { id })));
  action.seen[0]?.place?.fill('z');
  expect(action.seen.map(({ place }) => String(place))).toEqual(['zz', 'ab', 'ab']);
});
