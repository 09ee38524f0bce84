import { expect, it, vi } from 'vitest';
import { allSlots, beginning, openStore } from './fixtures/delivery-store.js';
import { EventWriter } from './fixtures/event-writer.js';
import { query } from './fixtures/query.js';

const dayMs = 86_400_000;

it('a partition is dropped once it is old and every cursor has passed it', async () => {
  const { store, url } = await openStore();
  await query(
    url,
    `create table eventlog.events_2020_01 partition of eventlog.events for values from ('2020-01-01') to ('2020-02-01')`,
  );
  await (await EventWriter.connect(url)).write('a', 1);
  await query(
    url,
    `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
       model_name, model_version, event_type, payload, headers, started_date, slot, created_date)
     select id, action_id, ordinal, namespace, action_name, action_params, principal, model_id, model_name, 2, event_type,
       payload, headers, started_date, slot, '2020-01-15' from eventlog.events`,
  );
  await store.cursors.register([{ name: 'notify', aliases: [], startFrom: 'beginning' }]);
  expect(await store.partitions.drop(30 * dayMs)).toEqual([]);

  const { next } = await store.log.read(allSlots, beginning, 10);
  const { leases } = await store.leases.renew('one', ['notify'], dayMs);
  await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: next })));
  expect(await store.partitions.drop(100 * 365 * dayMs)).toEqual([]);
  expect(await store.partitions.drop(30 * dayMs)).toEqual(['events_2020_01']);
  expect(await query(url, 'select model_version::int as version from eventlog.events')).toEqual([
    { version: 1 },
  ]);
});

it('a hint reaches who listens, also after the connection was lost', async () => {
  const { store, url } = await openStore();
  const onHint = vi.fn<() => void>();
  const stop = await store.hints.listen(onHint);
  const hinted = async (): Promise<void> => {
    onHint.mockClear();
    await vi.waitFor(async () => {
      await store.hints.notify();
      expect(onHint).toHaveBeenCalled();
    }, 10_000);
  };
  await hinted();
  await query(
    url,
    `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'framework hints' and datname = current_database()`,
  );
  await hinted();
  await stop();
});
