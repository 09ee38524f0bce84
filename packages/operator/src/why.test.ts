import { beforeEach, expect, test } from 'vitest';

import { MemoryDatabases } from '../test/fixtures/memory-databases.js';

let all: MemoryDatabases;
beforeEach(() => {
  all = new MemoryDatabases();
});

test('why explains what stands in the way of an event and of a model', async () => {
  const { operator, first } = all;
  await first.register('notify');
  const killed = await first.write('a', [1, 2, 3]);
  await first.kill('notify', killed.slice(0, 2), 'mailbox full\n    at send');
  const event = await operator.why(killed[0] ?? '');
  expect(event.kind).toBe('event');
  expect(event.sentences.join(' ')).toContain('notify: it is a dead letter after 3 attempts (mailbox full)');
  const model = await operator.why('a');
  expect(model.kind).toBe('model');
  expect(model.sentences).toEqual([
    expect.stringContaining('notify: has as dead letters 2 of the 3 events'),
    expect.stringContaining('notify: has not reached 1 of the 3 events'),
  ]);
  expect(await operator.why('nowhere')).toMatchObject({ kind: 'unknown', failures: [] });
});

test('why says what an event waits for: a retry, an earlier event, or its handler', async () => {
  const { operator, first } = all;
  await first.register('notify');
  const [retried = '', behind = '', unreached = ''] = await first.write('a', [1, 2, 3]);
  await first.block('notify', [retried, behind], { error: 'busy' });
  expect((await operator.why(retried)).sentences[1]).toMatch(/^notify: attempt 3 failed \(busy\)/);
  expect((await operator.why(behind)).sentences[1]).toContain(`waits for the earlier event ${retried}`);
  expect((await operator.why(unreached)).sentences[1]).toContain('no process works in its slot');
  await first.hold('worker', 'notify');
  expect((await operator.why(unreached)).sentences[1]).toContain('process worker works in its slot');
  await operator.pause('notify', { by: 'olivia', reason: 'x' });
  expect((await operator.why(unreached)).sentences[1]).toContain('The handler is paused: resume it.');
});

test('why says that nothing stands in the way of what every handler has passed', async () => {
  const [id = ''] = await all.first.write('a', [1]);
  await all.first.register('late');
  expect((await all.operator.why(id)).sentences).toEqual([
    expect.stringContaining('every handler has passed it'),
  ]);
  expect((await all.operator.why('a')).sentences).toEqual([
    expect.stringContaining('Every handler has passed the 1 events'),
  ]);
});

test('why names the first event of an action that a handler has not passed', async () => {
  const { operator, first } = all;
  await first.register('notify');
  const [firstId = ''] = await first.writeAtOnce('a', [1, 2, 3]);
  const answer = await operator.why(first.log[0]?.actionId ?? '');
  expect(answer.kind).toBe('action');
  expect(answer.sentences[1]).toContain(`ask about ${firstId}, the first one`);
});

test('why prefers what the application says, and goes on when it fails', async () => {
  const extended = new MemoryDatabases({
    extensions: [
      { why: async (id) => (id === 'a' ? { sentences: ['Mine.'], data: { mine: true } } : undefined) },
      { why: () => Promise.reject(new Error('canary')) },
    ],
  });
  await extended.first.write('a', [1]);
  const answer = await extended.operator.why('a');
  expect(answer).toMatchObject({
    kind: 'extension',
    sentences: ['Mine.', expect.stringContaining('events of the model a')],
    data: { mine: true },
    failures: [{ shards: [], code: 'internal' }],
  });
  expect(JSON.stringify(answer)).not.toContain('canary');
});

test('why says that a database which did not answer may know an id', async () => {
  const [id = ''] = await all.second.write('b', [1]);
  all.takeDown(1);
  const answer = await all.operator.why(id);
  expect(answer.kind).toBe('unknown');
  expect(answer.sentences[0]).toContain('may know it');
  all.recover();
  expect((await all.operator.why(id)).kind).toBe('event');
});
