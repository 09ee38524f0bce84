import { afterAll, beforeEach, describe, expect, test } from 'vitest';

import { MemoryCommands, missing, parsed, signed } from '../../test/fixtures/memory-commands.js';

const commands = new MemoryCommands();
const run = commands.run.bind(commands);
afterAll(() => commands.remove());

beforeEach(async () => {
  commands.renew();
  for (const database of [commands.first, commands.second]) await database.register('notify', 'publish');
});

/** Whether each handler is paused, in each database. */
async function paused(): Promise<Readonly<Record<string, readonly boolean[]>>> {
  const { items } = parsed(await run('consumers')) as {
    readonly items: readonly {
      readonly handler: string;
      readonly databases: readonly { readonly paused: boolean }[];
    }[];
  };
  return Object.fromEntries(
    items.map(({ handler, databases }) => [handler, databases.map((each) => each.paused)]),
  );
}

describe('consumers', () => {
  test('are listed, relays alone as well', async () => {
    expect(parsed(await run('consumers'))).toMatchObject({
      items: [
        { handler: 'notify', isRelay: false, databases: [{ shards: ['0/0'] }, { shards: ['1/0'] }] },
        { handler: 'publish', isRelay: true },
      ],
      failures: [],
    });
    expect(parsed(await run('relays'))).toMatchObject({ items: [{ handler: 'publish' }] });
    const asTable = await run('consumers --output table');
    expect(asTable.stdout).toMatch(/^HANDLER +KIND[^]*^publish +relay +1\/0 +no +0/m);
  });

  test('are paused and resumed, each of them twice in a row, with a record each time', async () => {
    for (const [command, isPaused] of [
      ['pause', true],
      ['pause', true],
      ['resume', false],
      ['resume', false],
    ] as const) {
      const changed = await run(`${command} notify --yes`, signed);
      expect([changed.code, parsed(changed)]).toMatchObject([
        0,
        { items: [{}, {}], changeIds: [expect.any(String)] },
      ]);
      expect(await paused()).toEqual({ notify: [isPaused, isPaused], publish: [false, false] });
    }
    const audit = parsed(await run('audit')) as { readonly items: readonly object[] };
    expect(audit.items).toHaveLength(8);
    expect(audit.items[0]).toMatchObject({ actor: 'olivia', ended: { outcome: 'done' } });
  });

  test('are retired once, and unknown a second time', async () => {
    const retired = await run('retire notify --yes', signed);
    expect(retired).toMatchObject({ code: 0 });
    expect(parsed(await run('consumers'))).toMatchObject({ items: [{ handler: 'publish' }] });
    expect(await run('retire notify --yes', signed)).toMatchObject({ code: 2, stdout: '' });
    expect(await run('pause nobody --yes', signed)).toMatchObject({ code: 2 });
    expect(commands.first.audit).toEqual([['retire', 'done']]);
  });

  test('are not retired while a process has them, and the command names it', async () => {
    await commands.first.hold('worker', 'notify');
    const refused = await run('retire notify --yes', signed);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/^error: 0\/0: handler-in-use: .*worker/);
    expect(parsed(refused)).toMatchObject({ items: [{ shards: ['1/0'] }] });
  });

  test('are retired with their blocked models by a person who says yes, and only with the option', async () => {
    const { first, second } = commands;
    await first.kill('notify', [...(await first.write('a', [1, 2])), ...(await first.write('b', [1]))], 'no');
    expect(await run('retire notify --yes', signed)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('handler-in-use') as string,
    });
    await second.register('notify');
    const kept = await run('retire notify --discard-blocked', signed, { answer: 'no\n' });
    expect(kept.stderr).toContain(
      'Remove notify for good, with 2 blocked models and all events that wait in them? [y/N]',
    );
    const retired = await run('retire notify --discard-blocked', signed, { answer: 'y\n' });
    expect(retired.stdout).toMatch(/^SHARDS +EVENTS\n0\/0 +2\n1\/0 +0$/m);
    await first.kill('publish', await first.write('a', [3, 4]), 'no');
    const one = await run('retire publish --discard-blocked', signed, { answer: 'no\n' });
    expect(one.stderr).toContain('with 1 blocked model and all events that wait in it?');
    const none = await run('retire publish', signed, { answer: 'no\n' });
    expect(none.stderr).toContain('Remove publish for good? [y/N]');
  });

  test('are listed with all events that wait in their blocked models, behind the dead letters', async () => {
    const { first } = commands;
    await first.kill('notify', await first.write('a', [1, 2, 3]), 'no');
    first.pass('notify');
    const listed = await run('consumers --output table');
    expect(listed.stdout).toMatch(/^notify +handler +0\/0 +no +0 +0 +3 +1 /m);
  });

  test('are shown and changed where their database is up, and there alone', async () => {
    const listed = await commands.runWithoutSecond('relays');
    expect([listed.code, parsed(listed)]).toMatchObject([1, missing]);
    const changed = await commands.runWithoutSecond('pause notify --yes', signed);
    expect(changed.code).toBe(1);
    expect(parsed(changed)).toMatchObject({ items: [{ shards: ['0/0'] }], ...missing });
    expect(await paused()).toMatchObject({ notify: [true, false] });
  });

  test('keep the whole of names and reasons that differ only at their ends', async () => {
    const reasons = ['x', 'y'].map((end) => `${'ü'.repeat(999)}${end}`);
    for (const reason of reasons) {
      const words = ['--by', 'ü'.repeat(255), '--reason', reason];
      expect(await run('pause notify --yes', words)).toMatchObject({ code: 0 });
    }
    const { items } = parsed(await run('audit')) as {
      readonly items: readonly { readonly reason: string }[];
    };
    expect(new Set(items.map(({ reason }) => reason))).toEqual(new Set(reasons));
    const tooLong = ['--by', 'olivia', '--reason', 'x'.repeat(1_001)];
    expect(await run('pause notify --yes', tooLong)).toMatchObject({ code: 2, stdout: '' });
  });

  test('are not changed by a dry run', async () => {
    for (const command of ['pause', 'resume', 'retire']) {
      const dry = await run(`${command} notify --dry-run`);
      expect([dry.code, parsed(dry)]).toMatchObject([0, { dryRun: true, changeIds: [], items: [{}, {}] }]);
    }
    expect(commands.first.audit).toEqual([]);
    expect(await paused()).toEqual({ notify: [false, false], publish: [false, false] });
  });
});
