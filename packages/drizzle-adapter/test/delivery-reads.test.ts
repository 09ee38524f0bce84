// @module-tag postgres
import { type Cursor, type DeliverableEvent, type DeliveryStore } from '@framework/core/adapter';
import { describe, expect, onTestFinished, test } from 'vitest';
import { allSlots, beginningOf, openStore } from './fixtures/delivery-store.js';
import { ChildProgram } from './fixtures/child-program.js';
import { EventWriter } from './fixtures/event-writer.js';
import { query } from './fixtures/query.js';

describe('a read of the log between cursors', () => {
  test(
    'passes one transaction of 50,000 events to a process with a small heap',
    { timeout: 180_000, tags: ['slow'] },
    async () => {
      const { url } = await openStore();
      await query(
        url,
        `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
           model_name, model_version, event_type, payload, headers, started_date, slot)
         select gen_random_uuid(), '00000000-0000-4000-8000-000000000000', n, 'test', 'Write', '{}', 'test', 'm' || n,
           'Thing', 1, 'ThingChangedEvent', jsonb_build_object('text', repeat('x', 2000)), '{}', now(), n % 16
         from generate_series(1, 50000) n`,
      );
      const reader = await ChildProgram.of('read-log.ts', '--max-old-space-size=64');
      onTestFinished(() => reader.remove());
      const seen = JSON.parse(await reader.run(url)) as unknown;
      expect(seen).toEqual({ count: 50_000, ordinals: 1_250_025_000, largest: 1_000 });
    },
  );

  test.each([1, 2, 1_000])(
    'keeps versions in order when an earlier xid wrote a later version (batches of %i)',
    async (limit) => {
      const { store, url } = await openStore();
      const [early, other] = [await EventWriter.connect(url), await EventWriter.connect(url)];
      await early.begin();
      await early.takeXid();
      await other.write('thing', 1);
      await other.write('thing', 2);
      await early.write('thing', 3);
      await early.commit();
      const { read } = await readAll(store, await beginningOf(store), limit);
      const first = new Map(read.toReversed().map(({ modelVersion }, index) => [modelVersion, -index]));
      expect([...first].toSorted(([, one], [, two]) => one - two).map(([version]) => version)).toEqual([
        1, 2, 3,
      ]);
    },
  );

  test('does not confuse models of different classes that share an id', async () => {
    const { store, url } = await openStore();
    const [early, other] = [await EventWriter.connect(url), await EventWriter.connect(url)];
    await early.begin();
    await early.takeXid();
    await other.write('thing', 1);
    const [, cut] = await early.write('thing', 2, 3);
    await early.commit();
    await query(url, `update eventlog.events set model_name = 'Another' where model_version = 1`);
    const from = await beginningOf(store);
    const { events } = await store.log.read(allSlots, from, 2);
    expect(events.map(({ modelVersion }) => modelVersion)).toEqual([2, 3]);
    expect(events.at(-1)!.id).toBe(cut);
  });
});

async function readAll(
  store: DeliveryStore,
  from: Cursor,
  limit: number,
): Promise<{ readonly read: readonly DeliverableEvent[]; readonly cursor: Cursor }> {
  const read: DeliverableEvent[] = [];
  let cursor = from;
  for (let more = true; more;) {
    const batch = await store.log.read(allSlots, cursor, limit);
    read.push(...batch.events);
    ({ next: cursor, more } = batch);
  }
  return { read, cursor };
}
