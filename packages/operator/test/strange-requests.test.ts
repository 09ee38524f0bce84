import type { Page } from '@framework/core';
import { beforeEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';

import { type OperatedDatabases, operatedDatabases } from './fixtures/operated-databases.js';

const signed = { by: 'olivia', reason: 'the mail server is back' };

let all: OperatedDatabases;
beforeAll(async () => {
  all = await operatedDatabases();
});
beforeEach(async () => {
  await Promise.all([all.first.reset(), all.second.reset()]);
});

/** Cuts off the second database until the test is over. */
async function cutOff(): Promise<void> {
  await all.proxy.refuse();
  onTestFinished(() => all.proxy.accept());
}

/** Reads page by page to the end, at most twenty pages. */
async function pagesOf<Item>(
  read: (after: string | undefined) => Promise<Page<Item>>,
): Promise<readonly (readonly Item[])[]> {
  const pages: (readonly Item[])[] = [];
  let after: string | undefined;
  do {
    const { items, next } = await read(after);
    pages.push(items);
    after = next;
  } while (after !== undefined && pages.length < 20);
  return pages;
}

describe('pages', () => {
  test('read a database that failed on the first one from its beginning', async () => {
    const { operator, first, second, proxy } = all;
    await first.write('a', [1, 2, 3]);
    await second.write('a', [1, 2]);
    await proxy.refuse();
    const start = await operator.model('a', { limit: 2 });
    expect(start.failures).toHaveLength(1);
    await proxy.accept();
    const rest = await operator.model('a', { limit: 2, after: start.next });
    const read = rest.items.map(({ shards, event }) => `${shards.join()} ${event.modelVersion}`);
    expect(read).toEqual(['0/0 3', '1/0 1', '1/0 2']);
  });

  test('end, although a database fails in their middle', async () => {
    const { operator, first, second } = all;
    await first.write('a', [1, 2, 3]);
    await second.write('a', [1, 2, 3]);
    const start = await operator.model('a', { limit: 1 });
    await cutOff();
    const pages = await pagesOf((after = start.next) => operator.model('a', { limit: 1, after }));
    expect(pages.map((items) => items.map(({ event }) => event.modelVersion))).toEqual([[2], [3]]);
  });

  test('lose no event of models of two classes that have the same id', async () => {
    const { operator, first } = all;
    await first.write('a', [1, 2]);
    await first.query(`update eventlog.events set model_name = 'Other'`);
    await first.write('a', [1, 2]);
    const history = await pagesOf((after) => operator.model('a', { limit: 1, after }));
    const versions = history.flat().map(({ event }) => `${event.modelName} ${event.modelVersion}`);
    expect(versions.toSorted()).toEqual(['Other 1', 'Other 2', 'Thing 1', 'Thing 2']);
    const backwards = await pagesOf((after) => operator.events({ modelId: 'a' }, { limit: 1, after }));
    expect(backwards.flat().map(({ event }) => `${event.modelName} ${event.modelVersion}`)).toEqual(
      versions.toReversed(),
    );
  });

  test.each([
    ['blocked', '0:garbage'],
    ['blocked', '0:1.000000/00000000-0000-7000-8000-000000000000/\ud800'],
    ['deadLetters', JSON.stringify({ '0/0': '["\\q","x"]' })],
    ['deadLetters', JSON.stringify({ '0/0': '["a\nb","x"]' })],
    ['deadLetters', JSON.stringify({ '0/0': '["a","b","c"]' })],
    ['events', JSON.stringify({ '0/0': '1.2.3' })],
  ] as const)('of %s are refused from the place %j', async (question, after) => {
    await expect(all.operator[question]({}, { after })).rejects.toMatchObject({ code: 'invalid-cursor' });
  });
});

describe('a change with a text that no database can store', () => {
  test.each([
    ['modelId', 'a\u0000b'],
    ['eventType', '\ud800'],
    ['errorLine', '\u0000'],
    ['eventId', '\udfff'],
  ])('in %s is refused', async (field, text) => {
    await expect(all.operator.replay({ [field]: text }, signed)).rejects.toMatchObject({
      code: 'operator-request',
    });
    expect(await all.first.audit()).toEqual([]);
  });
});

test('a search with an invalid date is refused', async () => {
  for (const date of [new Date(Number.NaN), new Date(-8.64e15)]) {
    await expect(all.operator.events({ since: date })).rejects.toMatchObject({ code: 'operator-request' });
    await expect(all.operator.events({ until: date })).rejects.toMatchObject({ code: 'operator-request' });
  }
});

test('why names the first event of an action that a handler has not passed', async () => {
  const { operator, first } = all;
  await first.register('notify');
  const [firstId = ''] = await first.write('a', [1, 2, 3]);
  const [action] = await first.query<{ actionId: string }>(
    `update eventlog.events set ordinal = model_version - 1,
       action_id = (select action_id from eventlog.events where model_version = 1)
     returning action_id as "actionId"`,
  );
  const { sentences } = await operator.why(action?.actionId ?? '');
  expect(sentences[1]).toContain(`ask about ${firstId}, the first one`);
});

test('why asks for one of the blocked events that come before an event, however many there are', async () => {
  const { operator, second, proxy } = all;
  await second.register('notify');
  const [firstId = ''] = await second.write('a', [1]);
  await second.kill('notify', [firstId], 'no');
  const [last] = await second.query<{ id: string }>(
    `insert into eventlog.parked_events (handler, event_id, slot, model_name, model_id, model_version, ordinal, event_type, event,
       attempts, dead, suspect)
     select handler, id, slot, model_name, model_id, n, ordinal, event_type, event || jsonb_build_object('id', id, 'modelVersion', n),
       0, false, false
     from eventlog.parked_events, lateral (select n, gen_random_uuid() as id from generate_series(2, 5000) n) as later
     returning event_id as id`,
  );
  let receivedBytes = 0;
  proxy.judge = ({ direction, bytes }) => {
    if (direction === 'to-client') receivedBytes += bytes.length;
    return 'forward';
  };
  onTestFinished(() => {
    proxy.judge = () => 'forward';
  });
  const { sentences } = await operator.why(last?.id ?? '');
  expect(sentences[1]).toContain(`it waits for the earlier event ${firstId} of its model, a dead letter`);
  expect(receivedBytes).toBeLessThan(20_000);
});
