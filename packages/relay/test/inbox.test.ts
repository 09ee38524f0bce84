import { FrameworkError } from '@framework/core';
import { seededRandom } from '@framework/testing';
import { randomUUID } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

import { Inbox, inboxTable } from '../src/inbox/index.js';
import { withDrizzle, withKysely, withNodeSqlite, withPg, withPostgresJs } from './inbox-databases.js';
import { describeInbox } from './inbox-suite.js';

describeInbox('pg', withPg);
describeInbox('Drizzle', withDrizzle);
describeInbox('Kysely', withKysely);
describeInbox('postgres.js', withPostgresJs);
describeInbox('node:sqlite', withNodeSqlite);

test('the entry for consumers needs no package but core', () => {
  const folder = join(import.meta.dirname, '../src/inbox');
  const files = readdirSync(folder).filter((file) => !file.endsWith('.test.ts'));
  const imported = files.flatMap((file) =>
    Array.from(readFileSync(join(folder, file), 'utf8').matchAll(/ from '([^']+)'/g), ([, from]) => from),
  );
  expect(new Set(imported.filter((from) => !from?.startsWith('./')))).toEqual(
    new Set(['@framework/core', '@framework/core/adapter']),
  );
});

describe('an inbox', () => {
  test.each([[undefined], [null], ['1'], [{ rowCount: 1 }]])(
    'refuses %j as a count of rows, because it could pass for a repeat',
    async (count) => {
      const inbox = new Inbox({ consumer: 'billing' });
      const accepted = inbox.accept(async () => count as never, randomUUID());
      expect(await codeOf(accepted)).toBe('invariant-violation');
    },
  );

  test.each([[''], ['x'.repeat(256)], ['\u0000'], [undefined]])('refuses the event id %j', async (id) => {
    const inbox = new Inbox({ consumer: 'billing' });
    expect(await codeOf(inbox.accept(async () => 1, id as string))).toBe('invariant-violation');
  });

  test.each([
    { consumer: '' },
    { consumer: 'ü'.repeat(128) },
    { consumer: 'billing', table: 'inbox; drop table inbox' },
    { consumer: 'billing', table: '' },
    { consumer: 'billing', dialect: 'oracle' },
    { consumer: 'billing', tabel: 'inbox' },
  ])('refuses the options %j', async (options) => {
    const create = async (): Promise<Inbox> => new Inbox(options as never);
    expect(await codeOf(create())).toBe('invalid-configuration');
  });

  test('has each effect once, although events are delivered at the same time, and transactions fail', async () => {
    const seed = Date.now() % 1_000_000;
    const random = seededRandom(seed);
    const database = await withPg();
    const inbox = new Inbox({ consumer: 'billing' });
    await inbox.createTable(database.query);
    const ids = Array.from({ length: 50 }, () => randomUUID());
    /** Delivers until a transaction is committed, as a broker does. */
    const deliver = async (id: string): Promise<void> => {
      const fails = random() < 0.5;
      const done = database.transaction(async (query) => {
        if (!(await inbox.accept(query, id))) return;
        await query('update effects set value = value + 1', []);
        if (fails) throw new Error('fails');
      });
      await done.catch(() => deliver(id));
    };
    await Promise.all([...ids, ...ids, ...ids].toSorted(() => random() - 0.5).map(deliver));
    expect({ seed, value: await database.value() }).toEqual({ seed, value: ids.length });
    await database.close();
  });

  test('has the second of two transactions refused at an isolation level stricter than read committed', async () => {
    const database = await withPg();
    const inbox = new Inbox({ consumer: 'billing' });
    await inbox.createTable(database.query);
    const id = randomUUID();
    const refused = database.transaction(async (query) => {
      await query('set transaction isolation level repeatable read', []);
      await query('select from effects', []);
      await database.transaction(async (other) => expect(await inbox.accept(other, id)).toBe(true));
      await inbox.accept(query, id);
    });
    await expect(refused).rejects.toMatchObject({ code: '40001' });
    await database.transaction(async (query) => expect(await inbox.accept(query, id)).toBe(false));
    await database.close();
  });

  test.each([{ table: 'a.b.c' }, { dialect: 'oracle' }, { consumer: 'billing' }])(
    'refuses the options %j of the statements for a migration',
    async (options) => {
      const statements = async (): Promise<unknown> => inboxTable(options as never);
      expect(await codeOf(statements())).toBe('invalid-configuration');
    },
  );

  test('has its own table and index, although long names differ only at the end', async () => {
    const database = await withPg();
    const tables = ['a', 'b'].map((end) => 'x'.repeat(61) + end);
    const [one, other] = tables.map((table) => new Inbox({ consumer: 'billing', table })) as [Inbox, Inbox];
    for (const inbox of [one, other]) await inbox.createTable(database.query);
    const id = randomUUID();
    expect(await one.accept(database.query, id)).toBe(true);
    expect(await other.accept(database.query, id)).toBe(true);
    const indexed = 'select from pg_indexes where tablename = $1';
    for (const table of tables) expect(await database.query(indexed, [table])).toBe(2);
    await database.close();
  });

  test('has a table in a schema, created by the statements for a migration', async () => {
    const database = await withPg();
    await database.query('create schema billing', []);
    for (const statement of inboxTable({ table: 'billing.inbox' })) await database.query(statement, []);
    const inbox = new Inbox({ consumer: 'billing', table: 'billing.inbox' });
    await inbox.createTable(database.query);
    expect(await inbox.accept(database.query, randomUUID())).toBe(true);
    await database.close();
  });
});

async function codeOf(work: Promise<unknown>): Promise<string | undefined> {
  const error: unknown = await work.catch((caught: unknown) => caught);
  return FrameworkError.is(error) ? error.code : String(error);
}
