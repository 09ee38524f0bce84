import { FrameworkError } from '@framework/core';
import { seededRandom } from '@framework/testing';
import { randomUUID } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { Inbox, type InboxQuery, inboxTable } from '../src/inbox/index.js';
import {
  type InboxDatabase,
  withDrizzle,
  withKysely,
  withMysql2,
  withNodeSqlite,
  withPg,
  withPostgresJs,
} from './inbox-databases.js';
import { brokerServer } from './servers.js';

const mysqlServer = await brokerServer('MariaDB or MySQL', 'MYSQL_URL', 'mysql://root@127.0.0.1:3306');

describeInbox('pg', withPg);
describeInbox('Drizzle', withDrizzle);
describeInbox('Kysely', withKysely);
describeInbox('postgres.js', withPostgresJs);
describeInbox('node:sqlite', withNodeSqlite);
if (mysqlServer !== undefined) describeInbox('mysql2', () => withMysql2(mysqlServer));

function describeInbox(client: string, open: () => Promise<InboxDatabase>): void {
  describe(`an inbox with ${client}`, () => {
    let database: InboxDatabase;
    let inbox: Inbox;
    beforeAll(async () => {
      database = await open();
      inbox = new Inbox({ consumer: 'billing', dialect: database.dialect });
      // As processes do that start at the same time, and then others.
      await Promise.all([1, 2, 3].map(() => inbox.createTable(database.query)));
      await inbox.createTable(database.query);
    });
    afterAll(() => database.close());

    /** What a consumer does with an event: adds 1 to its number if the event is not a repeat. */
    async function handle(query: InboxQuery, id: string): Promise<boolean> {
      if (!(await inbox.accept(query, id))) return false;
      await query('update effects set value = value + 1', []);
      return true;
    }

    /** Handles an event in a transaction that a test ends, and says how it was accepted. */
    function begin(id: string) {
      const accepted = Promise.withResolvers<boolean>();
      const end = Promise.withResolvers<void>();
      const done = database
        .transaction(async (query) => {
          accepted.resolve(handle(query, id));
          await accepted.promise;
          await end.promise;
        })
        .catch((error: unknown) => String(error));
      return { accepted: accepted.promise, end, done };
    }

    test('accepts an event once, so that its effect is written once', async () => {
      const [id, before] = [randomUUID(), await database.value()];
      for (const first of [true, false, false])
        await database.transaction(async (query) => expect(await handle(query, id)).toBe(first));
      expect(await database.value()).toBe(before + 1);
    });

    test('accepts an event again whose transaction was rolled back', async () => {
      const [id, before] = [randomUUID(), await database.value()];
      const failed = database.transaction(async (query) => {
        expect(await handle(query, id)).toBe(true);
        throw new Error('the invoice is wrong');
      });
      await expect(failed).rejects.toThrow('the invoice is wrong');
      expect(await database.value()).toBe(before);
      await database.transaction(async (query) => expect(await handle(query, id)).toBe(true));
      expect(await database.value()).toBe(before + 1);
    });

    test('recognises repeats of earlier events that arrive after later ones', async () => {
      const ids = [randomUUID(), randomUUID(), randomUUID()];
      const before = await database.value();
      for (const id of [...ids, ...ids])
        await database.transaction(async (query) => void (await handle(query, id)));
      expect(await database.value()).toBe(before + 3);
    });

    test('tells apart consumers and ids that differ in case or in a space at the end', async () => {
      const id = randomUUID();
      const other = new Inbox({ consumer: 'Billing', dialect: database.dialect });
      expect(await inbox.accept(database.query, id)).toBe(true);
      expect(await other.accept(database.query, id)).toBe(true);
      expect(await inbox.accept(database.query, id.toUpperCase())).toBe(true);
      expect(await inbox.accept(database.query, `${id} `)).toBe(true);
      expect(await inbox.accept(database.query, `${id}ß`)).toBe(true);
      expect(await inbox.accept(database.query, id)).toBe(false);
    });

    test('forgets what was accepted before a date, for its own consumer alone', async () => {
      const id = randomUUID();
      const [mine, other] = ['retention', 'other'].map(
        (consumer) => new Inbox({ consumer, dialect: database.dialect }),
      ) as [Inbox, Inbox];
      for (const each of [mine, other]) await each.accept(database.query, id);
      const hour = 3_600_000;
      expect(await mine.removeOlderThan(database.query, new Date(Date.now() - hour))).toBe(0);
      expect(await mine.accept(database.query, id)).toBe(false);
      expect(await mine.removeOlderThan(database.query, new Date(Date.now() + hour))).toBe(1);
      expect(await mine.accept(database.query, id)).toBe(true);
      expect(await other.accept(database.query, id)).toBe(false);
    });

    test('forgets more events than one statement removes', async () => {
      const consumer = randomUUID();
      const digits = Array.from({ length: 10 }, (_, digit) => `select ${digit} as digit`).join(' union all ');
      const tables = ['a', 'b', 'c', 'd'].map((name) => `(${digits}) ${name}`).join(', ');
      const id = 'a.digit + 10 * b.digit + 100 * c.digit + 1000 * d.digit';
      await database.query(
        `insert into inbox (consumer, event_id) select '${consumer}', ${id} from ${tables}`,
        [],
      );
      const ofMany = new Inbox({ consumer, dialect: database.dialect });
      await ofMany.accept(database.query, 'one more');
      expect(await ofMany.removeOlderThan(database.query, new Date(Date.now() + 60_000))).toBe(10_001);
    });

    test('makes the second of two transactions wait, and have a repeat once the first has committed', async ({
      skip,
    }) => {
      const { waiting = never } = database;
      skip(waiting === never, 'its transactions cannot run at the same time');
      const [id, before] = [randomUUID(), await database.value()];
      const first = begin(id);
      expect(await first.accepted).toBe(true);
      const second = begin(id);
      await expect.poll(waiting, { interval: 200 }).toBe(1);
      first.end.resolve();
      expect(await first.done).toBeUndefined();
      expect(await second.accepted).toBe(false);
      second.end.resolve();
      expect(await second.done).toBeUndefined();
      expect(await database.value()).toBe(before + 1);
    });

    test('lets the second of two transactions accept an event when the first is rolled back', async ({
      skip,
    }) => {
      const { waiting = never } = database;
      skip(waiting === never, 'its transactions cannot run at the same time');
      const [id, before] = [randomUUID(), await database.value()];
      const first = begin(id);
      expect(await first.accepted).toBe(true);
      const second = begin(id);
      await expect.poll(waiting, { interval: 200 }).toBe(1);
      first.end.reject(new Error('rolled back'));
      expect(await first.done).toBe('Error: rolled back');
      expect(await second.accepted).toBe(true);
      second.end.resolve();
      expect(await second.done).toBeUndefined();
      expect(await database.value()).toBe(before + 1);
    });
  });
}

test('the entry for consumers needs no package but core', () => {
  const folder = join(import.meta.dirname, '../src/inbox');
  const imported = readdirSync(folder).flatMap((file) =>
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

async function never(): Promise<number> {
  return 0;
}

async function codeOf(work: Promise<unknown>): Promise<string | undefined> {
  const error: unknown = await work.catch((caught: unknown) => caught);
  return FrameworkError.is(error) ? error.code : String(error);
}
