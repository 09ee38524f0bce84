import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';

import { type OperatedDatabases, operatedDatabases } from './fixtures/operated-databases.js';

const signed = { by: 'olivia', reason: 'the mail server is back' };

let all: OperatedDatabases;
beforeAll(async () => {
  all = await operatedDatabases();
});
afterAll(() => all.close());
beforeEach(() => Promise.all([all.first.reset(), all.second.reset()]));

describe('with one database of PostgreSQL cut off, an operator', () => {
  test('answers for the other one, and names what is missing without addresses', async () => {
    const { operator, first, second, proxy } = all;
    for (const database of [first, second]) {
      await database.register('notify');
      await database.kill('notify', await database.write('a', [1]), 'no');
    }
    await proxy.refuse();
    onTestFinished(() => proxy.accept());
    const answers = await Promise.all([
      operator.consumers(),
      operator.blocked(),
      operator.deadLetters(),
      operator.events(),
      operator.replay({ handler: 'notify' }, signed),
    ]);
    for (const { failures } of answers)
      expect(failures).toEqual([{ shards: ['1/0'], code: 'shard-unavailable' }]);
    expect(answers[4]).toMatchObject({ count: 1, items: [{ shards: ['0/0'] }] });
    expect(JSON.stringify(answers)).not.toMatch(/127\.0\.0\.1|ECONN/);
  });

  test('leaves a change without an outcome if its connections break', async () => {
    const { operator, second, proxy } = all;
    await second.register('notify');
    await second.kill('notify', await second.write('a', [1]), 'no');
    let isCut = false;
    proxy.judge = ({ direction, bytes }) => {
      isCut ||= direction === 'to-server' && bytes.includes('for update of b');
      return isCut ? 'cut' : 'forward';
    };
    expect((await operator.replay({ handler: 'notify' }, signed)).failures).toHaveLength(1);
    expect(await second.audit()).toMatchObject([{ phase: 'begun' }]);
    await proxy.refuse();
    proxy.judge = () => 'forward';
    await proxy.accept();
  });
});

test('pages of blocked models are refused from a place that PostgreSQL could not compare', async () => {
  const after = '0:["1.000000","notify","Thing","\\ud800"]';
  await expect(all.operator.blocked({}, { after })).rejects.toMatchObject({ code: 'invalid-cursor' });
});

test('why asks for one of the blocked events that come before an event, however many there are', async () => {
  const { operator, second, proxy } = all;
  await second.register('notify');
  const ids = await second.write(
    'a',
    Array.from({ length: 1_000 }, (_unused, index) => index + 1),
  );
  const firstId = ids[0] ?? '';
  await second.kill('notify', [firstId], 'no');
  let receivedBytes = 0;
  proxy.judge = ({ direction, bytes }) => {
    if (direction === 'to-client') receivedBytes += bytes.length;
    return 'forward';
  };
  onTestFinished(() => {
    proxy.judge = () => 'forward';
  });
  const { sentences } = await operator.why(ids.at(-1) ?? '');
  expect(sentences[1]).toContain(`it waits for the earlier event ${firstId} of its model, a dead letter`);
  expect(receivedBytes).toBeLessThan(20_000);
});
