// @module-tag postgres
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';

import type { Connection } from '../src/connection/connection.js';
import { searchLog } from '../src/delivery/log-search.js';
import { openStore } from './fixtures/delivery-store.js';

/** How many events one search examines. */
const examinedMax = 10_000;

/** Versions of a model, one event each; every hundredth is of `bob`, all others are of `alice`. */
const writeText = `
  insert into eventlog.events (id, epoch, action_id, ordinal, namespace, action_name, action_params, principal, model_id, model_name,
    model_version, event_type, payload, headers, started_date, slot)
  select gen_random_uuid(), 1, gen_random_uuid(), 0, 'test', 'ChangeThing', '{}', case when n % 100 = 1 then 'bob' else 'alice' end,
    'a', 'Thing', n, 'ThingChangedEvent', '{}', '{}', now(), 0
  from generate_series($1::integer, $2::integer) n`;

test.each([{}, { modelId: 'a' }])(
  'a search with %j finds each event once, although others are written between its pages',
  async (filter) => {
    const { url } = await openStore();
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    onTestFinished(() => client.end());
    let last = 0;
    const write = async (count: number): Promise<void> => {
      await client.query(writeText, [last + 1, last + count]);
      last += count;
    };
    await write(examinedMax + 150);
    const connection = client as Pick<Connection, 'query'>;
    const found: number[] = [];
    let after: string | undefined;
    do {
      const page = await searchLog(connection, { ...filter, principal: 'bob' }, { limit: 1_000, after });
      found.push(...page.items.map(({ event }) => event.modelVersion));
      after = page.next;
      await write(150);
    } while (after !== undefined);
    const before = Array.from({ length: 102 }, (_each, n) => 1 + 100 * n);
    expect(found.toReversed()).toEqual(before);
  },
);
