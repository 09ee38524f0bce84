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
  await first.kill('notify', killed, 'mailbox full\n    at send');
  await first.register('late');
  await first.write('a', [4]);
  const event = await operator.why(killed[0] ?? '');
  expect(event.kind).toBe('event');
  expect(event.sentences.join(' ')).toContain('notify: it is a dead letter after 3 attempts (mailbox full)');
  const model = await operator.why('a');
  expect(model.kind).toBe('model');
  expect(model.sentences).toEqual([
    expect.stringContaining(
      `notify: has as dead letters 1 of the 4 events of the model a; ask about ${killed[0]}`,
    ),
    expect.stringContaining(`notify: waits with 3 of the 4 events of the model a; ask about ${killed[1]}`),
    expect.stringContaining('late: has not reached 1 of the 4 events'),
  ]);
  expect(await operator.why('nowhere')).toMatchObject({ kind: 'unknown', failures: [] });
});

test('why says what an event waits for: a retry, an earlier event, or its handler', async () => {
  const { operator, first } = all;
  await first.register('notify');
  const [retried = '', behind = ''] = await first.write('a', [1, 2]);
  const [unreached = ''] = await first.write('b', [1]);
  await first.block('notify', [retried], { error: 'busy' });
  expect((await operator.why(retried)).sentences[1]).toMatch(/^notify: attempt 3 failed \(busy\)/);
  expect((await operator.why(behind)).sentences[1]).toContain(`waits for the earlier event ${retried}`);
  expect((await operator.why(unreached)).sentences[1]).toContain('no process works in its slot');
  await first.hold('worker', 'notify');
  expect((await operator.why(unreached)).sentences[1]).toContain('process worker works in its slot');
  await operator.pause('notify', { by: 'olivia', reason: 'x' });
  expect((await operator.why(unreached)).sentences[1]).toContain('The handler is paused: resume it.');
});

test('why says what a skipped or replayed event leads to: one that is due, or tried again', async () => {
  const { operator, first } = all;
  await first.register('notify');
  const [skipped = '', next = '', behind = ''] = await first.write('a', [1, 2, 3]);
  await first.kill('notify', [skipped], 'mailbox full\n    at send');
  const signed = { by: 'olivia', reason: 'x' };
  await operator.replay({ eventId: skipped }, signed);
  expect((await operator.why(skipped)).sentences[1]).toMatch(
    /^notify: no attempt counts so far; the last call failed \(mailbox full\), and the next one is at \d{4}-/,
  );
  await operator.skip({ eventId: skipped, dead: false }, signed);
  // The cursor of the handler has not passed the event.
  expect((await operator.why(skipped)).sentences[1]).toContain('no process works in its slot');
  expect((await operator.why(next)).sentences[1]).toBe('notify: it is due, and has not been tried yet.');
  // It is read together with the one before it.
  expect((await operator.why(behind)).sentences[1]).toContain('no process works in its slot');
  await first.try('notify', next);
  expect((await operator.why(behind)).sentences[1]).toContain(
    `waits for the earlier event ${next} of its model, which will be tried by itself`,
  );
  await operator.pause('notify', signed);
  expect((await operator.why(next)).sentences[1]).toBe(
    'notify: attempt 1 has begun, and its end is not recorded yet. The handler is paused: resume it.',
  );
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
