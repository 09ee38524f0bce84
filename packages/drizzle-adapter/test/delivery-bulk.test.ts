// @module-tag postgres
import type { BlockedModel, DatabaseDelivery, DeliveryStore } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';
import { allSlots, openStore } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { openRegistry } from './fixtures/open-registry.js';
import { withEvents } from './fixtures/blocked-models.js';
import { query } from './fixtures/query.js';

describe('a large number of blocked models', () => {
  test(
    'is read once while its models are listed in pages, rather than again for each page',
    { tags: ['slow'] },
    async () => {
      const { url } = await emptyDatabase();
      const registry = openRegistry([{ group: 0, member: 0, url }], {});
      await registry.ready();
      const [{ store }] = registry.deliveries() as [DatabaseDelivery];
      await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
      await query(
        url,
        `insert into eventlog.blocked_models (slot, handler, model_name, model_id, model_version, ordinal)
       select n % 16, 'notify', 'Thing', 'm' || n, 1, 0 from generate_series(1, 40000) n`,
      );
      await query(url, 'analyze eventlog.blocked_models');
      expect(await modelsByPages(store, 2_000)).toHaveLength(40_000);
      // A connection reports what it has read at its end, and PostgreSQL 14 counts it some time later.
      await registry.close();
      const rowsRead = async (): Promise<number> => {
        const [read] = await query<{ rows: number }>(
          url,
          `select (t.seq_tup_read + sum(i.idx_tup_read))::integer as rows
         from pg_stat_user_tables t join pg_stat_user_indexes i using (relid)
         where t.relname = 'blocked_models' group by t.seq_tup_read`,
        );
        return read!.rows;
      };
      await expect.poll(rowsRead, { timeout: 20_000 }).toBeGreaterThanOrEqual(40_000);
      const connections = `select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`;
      await expect.poll(() => query(url, connections), { timeout: 20_000 }).toEqual([]);
      expect(await rowsRead()).toBeLessThan(3 * 40_000);
    },
  );

  test('is searched through matching indexes', { tags: ['slow'] }, async () => {
    const { url } = await openStore();
    const of = `from eventlog.blocked_models where dead and`;
    const order = 'order by blocked_date, handler, model_name, model_id limit 100';
    const questions = [
      `select * from eventlog.blocked_models where dead ${order}`,
      `select * ${of} handler = 'one' ${order}`,
      `select * from eventlog.blocked_models where event_id = '00000000-0000-7000-8000-000000000000'`,
      `select * ${of} model_id = 'one' ${order}`,
    ];
    // Every tenth of the 30,000 models has a dead letter, all of them for the first handler.
    await query(url, `insert into eventlog.handlers (handler) values ('one'), ('two')`);
    await query(
      url,
      `insert into eventlog.blocked_models (handler, slot, model_name, model_id, model_version, ordinal, event_id, event_type, dead)
       select case when n % 2 = 0 then 'one' else 'two' end, n % 16, 'Thing', 'm' || n, n, 0, gen_random_uuid(), 'Happened', n % 10 = 0
       from generate_series(1, 30000) n`,
    );
    await query(url, 'analyze eventlog.blocked_models');
    for (const question of questions) {
      const plan = await query<{ 'QUERY PLAN': string }>(url, `explain ${question}`);
      expect(plan.map((line) => line['QUERY PLAN']).join('\n')).not.toContain('Seq Scan');
    }
  });

  test(
    'is searched almost as quickly as usual while many models are being tried',
    { tags: ['slow'] },
    async () => {
      const { store, url, everywhere } = await withEvents('a', 1);
      await query(
        url,
        `insert into eventlog.blocked_models (handler, slot, model_name, model_id, model_version, ordinal, event_id, due_date)
         select 'notify', n % 16, 'Thing', 'm' || n, 1, 0, gen_random_uuid(), now() from generate_series(1, 16000) n`,
      );
      const tried = await store.blocked.dueHeads(everywhere, 1_000);
      const quickestMs = async (except: readonly BlockedModel[]): Promise<number> => {
        const timesMs: number[] = [];
        for (let times = 0; times < 3; times++) {
          const startedMs = performance.now();
          expect(await store.blocked.dueHeads(everywhere, 200, { except })).toHaveLength(200);
          timesMs.push(performance.now() - startedMs);
        }
        return Math.min(...timesMs);
      };
      expect(tried).toHaveLength(1_000);
      // From the sixth execution on, a prepared statement has one plan for all values.
      for (let times = 0; times < 10; times++) await quickestMs([]);
      expect(await quickestMs(tried)).toBeLessThan(15 * (await quickestMs([])));
    },
  );
});

/** All blocked models of `notify`, as read by a process that gains the slots. */
async function modelsByPages(store: DeliveryStore, limit: number): Promise<readonly BlockedModel[]> {
  const places = allSlots.map((slot) => ({ handler: 'notify', slot }));
  const found: BlockedModel[] = [];
  for (let after: BlockedModel | undefined; ; after = found.at(-1)) {
    const page = await store.blocked.models(places, { limit, after });
    expect(page.length).toBeLessThanOrEqual(limit);
    found.push(...page);
    if (page.length < limit) return found;
  }
}
