import { afterAll, beforeEach, describe, expect, test } from 'vitest';

import { MemoryCommands, linesOf, missing, parsed } from '../../test/fixtures/memory-commands.js';

const commands = new MemoryCommands();
const run = commands.run.bind(commands);
afterAll(() => commands.remove());

const upTo = (count: number): readonly number[] => Array.from({ length: count }, (_each, index) => index + 1);

interface Line {
  readonly shards: readonly string[];
  readonly event: { readonly id: string; readonly payload: { readonly text?: string } };
}

let ids: readonly string[];
beforeEach(async () => {
  commands.renew();
  const { first, second } = commands;
  await first.register('notify');
  ids = await first.write('a', [1, 2, 3]);
  await second.write('b', [1], { principal: 'bob' });
});

describe('the events of two logs', () => {
  test('are searched by model, and by principal only with a time', async () => {
    const ofModel = await run('events search --model a --limit 2');
    expect(parsed(ofModel)).toMatchObject({
      items: [
        { shards: ['0/0'], event: { modelId: 'a', modelVersion: 3 }, deliveries: [{ state: 'pending' }] },
        { event: { modelVersion: 2 } },
      ],
      failures: [],
    });
    expect(ofModel.code).toBe(0);
    const { next } = parsed(ofModel) as { readonly next: string };
    const rest = await run('events search --model a', ['--after', next]);
    expect(parsed(rest)).toMatchObject({ items: [{ event: { modelVersion: 1 } }] });
    const ofBob = await run('events search --principal bob --since 2025-01-01');
    expect(parsed(ofBob)).toMatchObject({ items: [{ shards: ['1/0'], event: { principal: 'bob' } }] });
    expect(await run('events search --principal bob')).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('since') as string,
    });
  });

  test('are searched from a time on, and up to a time, which is excluded', async () => {
    const { clock } = commands.databases;
    const date = new Date(clock.now().getTime() + 1_000);
    await clock.advance(1_000);
    await commands.first.write('t', [1]);
    const [exactly, later] = [date, new Date(date.getTime() + 1)].map((each) => each.toISOString()) as [
      string,
      string,
    ];
    expect([await found('--since', exactly), await found('--since', later)]).toEqual([1, 0]);
    expect([await found('--until', exactly), await found('--until', later)]).toEqual([0, 1]);
  });

  test('are shown one by one, with what stands in the way', async () => {
    const known = await run('events show', [ids[0]!]);
    expect(parsed(known)).toMatchObject({
      items: [{ event: { id: ids[0] }, standings: [{ handler: 'notify' }] }],
    });
    expect(await run('events show nowhere')).toMatchObject({ code: 3 });
    const asTable = await run('events show --output table', [ids[0]!]);
    expect(asTable.stdout).toMatch(/payload +\{"version":1\}/);
    expect(asTable.stdout).toMatch(/^notify +pending/m);
  });

  test('are exported as lines, with large payloads, in pages', async () => {
    const text = `${'ü'.repeat(35_000)}x`;
    const [largeId] = await commands.first.write('large', [1], { payload: { text } });
    await commands.first.writeAtOnce('c', upTo(250));
    const exported = await run('events export');
    expect(exported.code).toBe(0);
    const lines = linesOf(exported) as readonly Line[];
    expect(lines).toHaveLength(255);
    expect(new Set(lines.map(({ event }) => event.id)).size).toBe(255);
    expect(lines.find(({ event }) => event.id === largeId)?.event.payload.text).toBe(text);
    for (const [words, count] of [
      ['--shard 1/0', 1],
      ['--principal bob', 1],
      ['--model a', 3],
    ] as const)
      expect(linesOf(await run(`events export ${words}`))).toHaveLength(count);
  });

  test('are exported as far as a database answers, the other one whole', async () => {
    await commands.second.writeAtOnce('long', upTo(400));
    let pageCount = 0;
    commands.databases.takeDown(
      1,
      ({ operation }) => operation === 'operator.searchEvents' && ++pageCount > 1,
    );
    const exported = await run('events export');
    expect(exported).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: 1\/0: /) as string });
    const lines = linesOf(exported) as readonly Line[];
    expect(lines.filter(({ shards }) => shards[0] === '0/0')).toHaveLength(3);
    expect(lines).toHaveLength(3 + 200);
    expect(new Set(lines.map(({ event }) => event.id)).size).toBe(lines.length);
  });

  test('are exported with code 1, and all lines, when a payload can no longer be read', async () => {
    const text = 'x'.repeat(70_000);
    const [largeId] = await commands.first.write('large', [1], { payload: { text } });
    commands.databases.takeDown(0, ({ operation }) => operation === 'log.find');
    const exported = await run('events export');
    expect(exported).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`error: 0/0: internal: ${largeId} is incomplete`) as string,
    });
    const lines = linesOf(exported) as readonly Line[];
    expect(lines).toHaveLength(5);
    const large = lines.find(({ event }) => event.id === largeId);
    expect(large?.event).toMatchObject({ omitted: true, modelId: 'large' });
  });

  test('are followed until there are enough', async () => {
    let isWritten = false;
    const ended = await run('events tail --last 1 --count 3 --interval-ms 20 --type ThingChangedEvent', [], {
      onOutput: () => {
        if (isWritten) return;
        isWritten = true;
        void commands.first.write('d', [1]).then(() => commands.second.write('e', [1]));
      },
    });
    expect(linesOf(ended)).toMatchObject([
      { event: { modelId: expect.any(String) as string } },
      { event: { modelId: 'd' } },
      { event: { modelId: 'e' } },
    ]);
    expect(ended.code).toBe(0);
  });

  test('are followed until Ctrl-C, after which nothing listens for it', async () => {
    const before = process.listenerCount('SIGINT');
    let isInterrupted = false;
    const ended = await run('events tail --last 1 --interval-ms 600000', [], {
      onOutput: () => {
        if (!isInterrupted) setImmediate(() => process.emit('SIGINT'));
        isInterrupted = true;
      },
    });
    expect([ended.code, linesOf(ended).length]).toEqual([0, 1]);
    expect(process.listenerCount('SIGINT')).toBe(before);
  });

  test('of a database that is up are shown while the other one is down', async () => {
    const searched = await commands.runWithoutSecond('events search');
    expect(parsed(searched)).toMatchObject({ items: [{}, {}, {}], ...missing });
    const exported = await commands.runWithoutSecond('events export');
    expect(linesOf(exported)).toHaveLength(3);
    for (const { code, stderr } of [searched, exported]) {
      expect(code).toBe(1);
      expect(stderr).toMatch(/^error: 1\/0: shard-unavailable/);
    }
  });
});

/** How many events of the model `t` a search finds. */
async function found(...words: readonly string[]): Promise<number> {
  const { items } = parsed(await run('events search --model t', words)) as {
    readonly items: readonly object[];
  };
  return items.length;
}
