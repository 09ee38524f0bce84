import { afterAll, beforeEach, describe, expect, test, vi } from 'vitest';

import { MemoryCommands, missing, parsed, signed } from '../../test/fixtures/memory-commands.js';

const commands = new MemoryCommands();
const run = commands.run.bind(commands);
afterAll(() => commands.remove());

let ids: readonly string[];
beforeEach(async () => {
  commands.renew();
  const { first, second } = commands;
  for (const database of [first, second]) await database.register('notify');
  ids = await first.writeModels(['a', 'a2', 'a3']);
  for (const id of ids) {
    await first.kill('notify', [id], 'mailbox full\n    at send');
    await commands.databases.clock.advance(1);
  }
  await second.kill('notify', await second.write('b', [1]), 'no such user');
});

describe('dead letters', () => {
  test('are listed by error, one by one, and shown', async () => {
    const groups = await run('dead-letters list');
    expect(parsed(groups)).toMatchObject({
      items: [
        { handler: 'notify', errorLine: 'mailbox full', count: 3, exampleEventId: ids[0] },
        { errorLine: 'no such user', count: 1, shards: ['1/0'] },
      ],
    });
    const single = await run('dead-letters list --events --error-line', ['mailbox full']);
    expect(parsed(single)).toMatchObject({ items: ids.map((id) => ({ event: { id }, dead: true })) });
    const shown = await run('dead-letters show --output table', [ids[0]!]);
    expect(shown.stdout).toMatch(/handler +notify[^]*mailbox full/);
    expect(await run('dead-letters show 00000000-0000-4000-8000-000000000000')).toMatchObject({ code: 3 });
    expect(await run('dead-letters list --model a')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--events') as string,
    });
  });

  test('that are replayed will be tried again, and the events behind a skipped one are left to why', async () => {
    const [next = '', behind = ''] = await commands.first.write('a', [2, 3]);
    const list = 'dead-letters list --events --state waiting --output table';
    await run('dead-letters replay --yes', [...signed, '--event', ids[0]!]);
    expect((await run(list)).stdout).toMatch(new RegExp(`${ids[0]!}.* 1 .* 0 +2\\S+Z +mailbox full$`, 'm'));
    const skip = ['--model', 'a', '--state', 'waiting', ...signed];
    const asked = await run('dead-letters skip', skip, { answer: 'y\n' });
    expect(asked.stderr).toContain('Skip 1 events that will be tried again? [y/N]');
    expect(asked.stdout).toContain('1 events were changed');
    expect((await run(list)).stdout).toContain('No blocked events');
    await commands.first.try('notify', next);
    for (const [id, why] of [
      [next, 'attempt 1 has begun'],
      [behind, `waits for the earlier event ${next}`],
    ] as const) {
      const shown = await run('dead-letters show --output table', [id]);
      expect(shown).toMatchObject({ code: 3 });
      expect(shown.stdout).toContain(`framework why ${id} says`);
      expect((await run(`why ${id}`)).stdout).toContain(why);
    }
  });

  test.each(['dead-letters list', 'dead-letters list --events', 'dead-letters list --handler notify'])(
    'of a database that is down are missing, as %s tells',
    async (command) => {
      const listed = await commands.runWithoutSecond(command);
      expect(listed).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^error: 1\/0: shard-unavailable/) as string,
      });
      expect(parsed(listed)).toMatchObject(missing);
    },
  );

  test('are only counted by a dry run, which needs no reason', async () => {
    for (const command of ['replay', 'skip']) {
      const dry = await run(`dead-letters ${command} --handler notify --dry-run`);
      expect(dry.code).toBe(0);
      expect(parsed(dry)).toMatchObject({ dryRun: true, count: 4, changeIds: [] });
    }
    expect(commands.first.audit).toEqual([]);
    expect(parsed(await run('dead-letters list'))).toMatchObject({ items: [{ count: 3 }, {}] });
  });

  test.each(['replay', 'skip'])(
    'are changed once by %s with a reason, and a second time there is nothing to do',
    async (change) => {
      const words = [...signed, '--handler', 'notify', '--yes'];
      const changed = await run(`dead-letters ${change}`, words);
      expect(changed.code).toBe(0);
      expect(parsed(changed)).toMatchObject({
        dryRun: false,
        count: 4,
        mayBeMore: false,
        changeIds: [expect.any(String)],
        items: [
          { shards: ['0/0'], count: 3 },
          { shards: ['1/0'], count: 1 },
        ],
      });
      expect(parsed(await run('dead-letters list'))).toMatchObject({ items: [] });
      expect(parsed(await run(`dead-letters ${change}`, words))).toMatchObject({ count: 0, changeIds: [] });
      expect(commands.first.audit).toEqual([[change, 'done']]);
    },
  );

  test('are skipped by a person who says yes, and kept by one who does not', async () => {
    const words = ['--event', ids[0]!, ...signed];
    const kept = await run('dead-letters skip', words, { answer: 'no\n' });
    expect(kept).toMatchObject({ code: 2 });
    expect(kept.stderr).toContain('Skip 1 dead letters? [y/N]');
    expect(await run('dead-letters skip', words, { answer: '' })).toMatchObject({ code: 2 });
    expect(commands.first.audit).toEqual([]);
    const skipped = await run('dead-letters skip', words, { answer: 'y\n' });
    expect(skipped).toMatchObject({ code: 0 });
    expect(skipped.stdout).toMatch(/^0\/0 +1$/m);
    expect(parsed(await run('dead-letters list'))).toMatchObject({ items: [{ count: 2 }, {}] });
  });

  test('are not changed without a filter, without a reason, and if nobody can be asked', async () => {
    for (const [command, words, text] of [
      ['skip --yes', signed, 'without a filter'],
      ['skip --handler notify --yes', [], '--reason'],
      ['skip --handler notify', signed, '--yes'],
      ['replay --handler nobody --yes', signed, 'nobody'],
    ] as const) {
      const refused = await run(`dead-letters ${command}`, words);
      expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining(text) as string });
    }
    expect(commands.first.audit).toEqual([]);
  });

  test('are not changed because a variable says that nobody says yes', async () => {
    const words = ['--event', ids[0]!, ...signed];
    vi.stubEnv('FRAMEWORK_CLI_YES', 'false');
    expect(await run('dead-letters skip', words)).toMatchObject({ code: 2 });
    vi.stubEnv('FRAMEWORK_CLI_YES', 'maybe');
    const unclear = await run('dead-letters skip', words);
    expect(unclear).toMatchObject({ code: 2 });
    expect(unclear.stderr).toContain('FRAMEWORK_CLI_YES must be true or false');
    expect(commands.first.audit).toEqual([]);
    vi.stubEnv('FRAMEWORK_CLI_YES', 'true');
    vi.stubEnv('FRAMEWORK_CLI_DRY_RUN', '');
    expect(parsed(await run('dead-letters skip', words))).toMatchObject({ dryRun: false, count: 1 });
  });

  test('are changed where their database is up, and where it was down when the command is repeated', async () => {
    const words = [...signed, '--handler', 'notify', '--yes'];
    const replayed = await commands.runWithoutSecond('dead-letters replay', words);
    expect(replayed.code).toBe(1);
    expect(parsed(replayed)).toMatchObject({ count: 3, items: [{ shards: ['0/0'] }], ...missing });
    const repeated = await run('dead-letters replay', words);
    expect(repeated.code).toBe(0);
    expect(parsed(repeated)).toMatchObject({
      count: 1,
      items: [{ count: 0 }, { shards: ['1/0'], count: 1 }],
    });
  });

  test('that are changed in part are reported, and the rest when the command is repeated', async () => {
    const { second } = commands;
    await second.kill(
      'notify',
      await second.writeModels(Array.from({ length: 1_500 }, (_each, n) => `c${n}`)),
      'no',
    );
    let stepCount = 0;
    commands.databases.takeDown(1, ({ operation }) => operation === 'deadLetters.skip' && ++stepCount > 1);
    const words = [...signed, '--handler', 'notify', '--yes'];
    const cut = await run('dead-letters skip', words);
    expect(cut.code).toBe(1);
    expect(parsed(cut)).toMatchObject({
      count: 1_003,
      mayBeMore: true,
      items: [
        { count: 3, mayBeMore: false },
        { count: 1_000, mayBeMore: true },
      ],
      ...missing,
    });
    commands.databases.recover();
    expect(parsed(await run('dead-letters skip', words))).toMatchObject({ count: 501, failures: [] });
    expect(second.audit).toEqual([
      ['skip', 'failed'],
      ['skip', 'done'],
    ]);
  });

  test('of long models that differ only at the end are changed apart', async () => {
    const { first } = commands;
    const [id, other] = ['x', 'y'].map((end) => `${'ü'.repeat(254)}${end}`) as [string, string];
    for (const model of [id, other])
      await first.kill('notify', await first.write(model, [1]), `${model}\nat`);
    const line = id.slice(0, 200);
    const listed = await run('dead-letters list --events --error-line', [line]);
    expect(parsed(listed)).toMatchObject({ items: { length: 2 } });
    expect(parsed(await run('dead-letters skip --yes', [...signed, '--model', id]))).toMatchObject({
      count: 1,
    });
    expect(parsed(await run('dead-letters list --events --model', [other]))).toMatchObject({
      items: { length: 1 },
    });
  });

  test('are listed in pages, the last of which may be exactly full', async () => {
    const whole = await run('dead-letters list --events --limit 4');
    expect(parsed(whole)).toMatchObject({ items: { length: 4 } });
    expect(parsed(whole)).not.toHaveProperty('next');
    const start = await run('dead-letters list --events --limit 3');
    const { next } = parsed(start) as { readonly next: string };
    const rest = await run('dead-letters list --events --limit 1', ['--after', next]);
    expect(parsed(rest)).toMatchObject({ items: [{ event: { modelId: 'b' } }] });
    expect(parsed(rest)).not.toHaveProperty('next');
    const forged = await run('dead-letters list --after x');
    expect(forged).toMatchObject({ code: 2, stdout: '' });
  });
});
