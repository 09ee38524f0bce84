import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

import { Inbox, type InboxDialect, type InboxQuery } from '../src/inbox/index.js';
import type { InboxDatabase } from './inbox-databases.js';

/** A zone by its name and by its offset, which a server has without a table of zones. */
const west = { name: 'America/Phoenix', offset: '-07:00' } as const;
const east = { name: 'Asia/Tokyo', offset: '+09:00' } as const;
type Zone = typeof west | typeof east;

/** The statement that sets the zone of a session, where sessions have one. */
const setZone: Readonly<Record<InboxDialect, ((zone: Zone) => string) | undefined>> = {
  postgresql: ({ name }) => `set local time zone '${name}'`,
  mysql: ({ offset }) => `set time_zone = '${offset}'`,
  sqlite: undefined,
};

/** Defines the tests of an inbox that a client of a database keeps. */
export function describeInbox(client: string, open: () => Promise<InboxDatabase>): void {
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

    test.each([
      { accepting: west, removing: east },
      { accepting: east, removing: west },
    ])(
      'forgets by the instant of acceptance, with sessions in $accepting.name, then in $removing.name',
      async ({ accepting, removing }) => {
        const ofZones = new Inbox({ consumer: randomUUID(), dialect: database.dialect });
        const [accept, remove] = [accepting, removing].map(
          (zone) => (work: (query: InboxQuery) => Promise<void>) => {
            // SQLite and the clients of all databases may take the zone of the process.
            vi.stubEnv('TZ', zone.name);
            return database.transaction(async (query) => {
              const statement = setZone[database.dialect]?.(zone);
              if (statement !== undefined) await query(statement, []);
              await work(query);
            });
          },
        ) as [typeof database.transaction, typeof database.transaction];
        const hour = 3_600_000;
        await accept(async (query) => expect(await ofZones.accept(query, randomUUID())).toBe(true));
        await remove(async (query) => {
          expect(await ofZones.removeOlderThan(query, new Date(Date.now() - hour))).toBe(0);
          expect(await ofZones.removeOlderThan(query, new Date(Date.now() + hour))).toBe(1);
        });
      },
    );

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

async function never(): Promise<number> {
  return 0;
}
