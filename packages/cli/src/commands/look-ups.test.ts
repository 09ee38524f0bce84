import { afterAll, beforeEach, describe, expect, test } from 'vitest';

import { MemoryCommands, missing, parsed, signed } from '../../test/fixtures/memory-commands.js';

const commands = new MemoryCommands();
const run = commands.run.bind(commands);
afterAll(() => commands.remove());
beforeEach(() => commands.renew());

describe('the history of a model', () => {
  test('is shown, and is without fault', async () => {
    await commands.first.write('a', [1, 2, 3]);
    const shown = await run('model a');
    expect(parsed(shown)).toMatchObject({
      items: [1, 2, 3].map((modelVersion) => ({ event: { modelVersion } })),
    });
    expect(shown.code).toBe(0);
    const verified = await run('model a --verify');
    expect(parsed(verified)).toEqual({ id: 'a', count: 3, firstVersion: 1, faults: [], failures: [] });
    expect(verified.code).toBe(0);
    expect((await run('model nobody --verify')).code).toBe(3);
  });

  test('has faults if a version is missing, occurs twice, or is in two databases', async () => {
    await commands.first.write('gap', [2, 3, 5, 9]);
    await commands.first.write('twice', [1, 2, 2]);
    await commands.first.write('both', [1]);
    await commands.second.write('both', [2]);
    for (const [id, expected] of [
      [
        'gap',
        { firstVersion: 2, faults: ['Version 4 is missing (0/0).', 'Version 6 to 8 are missing (0/0).'] },
      ],
      ['twice', { faults: [expect.stringMatching(/^Version 2 occurs twice, in the actions/)] }],
      ['both', { faults: ['Several databases have a history of the model: 0/0; 1/0.'] }],
    ] as const) {
      const ended = await run(`model ${id} --verify`);
      expect([ended.code, parsed(ended)]).toMatchObject([3, expected]);
    }
  });

  test('has a fault if a version occurs twice where a page ends', async () => {
    const versions = Array.from({ length: 1_000 }, (_each, index) => index + 1);
    await commands.first.writeAtOnce('long', versions);
    await commands.first.write('long', [1_000]);
    expect(parsed(await run('model long --verify'))).toMatchObject({
      count: 1_001,
      faults: [expect.stringMatching(/^Version 1000 occurs twice/)],
    });
  });

  test('is without fault if another model has the same id', async () => {
    await commands.first.write('shared', [1, 2], { modelName: 'Other' });
    await commands.first.write('shared', [1, 2, 3]);
    await commands.second.write('shared', [1], { modelName: 'Third' });
    expect(parsed(await run('model shared --verify'))).toMatchObject({ count: 6, faults: [] });
  });

  test('is not proved while a database is down, at once or between two pages', async () => {
    await commands.first.write('a', [1]);
    const verified = await commands.runWithoutSecond('model a --verify');
    expect(verified.code).toBe(1);
    expect(parsed(verified)).toMatchObject({ count: 1, faults: [], ...missing });

    await commands.second.writeAtOnce(
      'long',
      Array.from({ length: 1_001 }, (_each, index) => index + 1),
    );
    let pageCount = 0;
    commands.databases.takeDown(1, ({ operation }) => operation === 'operator.history' && ++pageCount > 1);
    const cut = await run('model long --verify');
    expect([cut.code, parsed(cut)]).toMatchObject([1, { count: 1_000, ...missing }]);
  });
});

test('a request is found by its idempotency key, and its action by its id', async () => {
  const scope = { namespace: 'test', principal: 'alice', key: 'k' };
  const key = { ...scope, fingerprint: 'f', result: undefined, lifetimeMs: 60_000 };
  await commands.first.writeAtOnce('a', [2], { key });
  const { actionId = '' } = commands.first.log[0] ?? {};
  expect(parsed(await run('key k'))).toMatchObject({
    items: [{ principal: 'alice', action: { actionId, events: [{}] } }],
  });
  expect(await run('key k --principal bob')).toMatchObject({ code: 3 });
  expect(parsed(await run(`action ${actionId}`))).toMatchObject({
    items: [{ actionName: 'ChangeThing', shards: ['0/0'] }],
  });
  expect(await run('action nothing')).toMatchObject({ code: 3 });
  expect((await run('key k --output table')).stdout).toMatch(/^key +k$[^]*Thing a +2 /m);
  for (const command of ['key k', `action ${actionId}`]) {
    const ended = await commands.runWithoutSecond(command);
    expect([ended.code, parsed(ended)]).toMatchObject([1, { items: [{}], ...missing }]);
  }
});

test('the audit is listed page by page, and as far as a database answers', async () => {
  await commands.first.register('notify');
  for (let n = 0; n < 2; n++) {
    await run('pause notify --yes', signed);
    await commands.databases.clock.advance(1);
  }
  expect(parsed(await run('audit --limit 2'))).not.toHaveProperty('next');
  const { items, next } = parsed(await run('audit --limit 1')) as {
    readonly items: readonly object[];
    readonly next: string;
  };
  const rest = parsed(await run('audit --limit 1', ['--after', next])) as {
    readonly items: readonly object[];
  };
  expect([items.length, rest.items.length]).toEqual([1, 1]);
  const cut = await commands.runWithoutSecond('audit');
  expect([cut.code, parsed(cut)]).toMatchObject([1, { items: { length: 2 }, ...missing }]);
});
