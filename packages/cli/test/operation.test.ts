import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';

import {
  type OperatedDatabases,
  operatedDatabases,
} from '../../operator/test/fixtures/operated-databases.js';
import { type RunOptions, runHere } from './fixtures/command-here.js';
import type { Ended } from './fixtures/command-line.js';

const transfersTable =
  'create table transfers (id text primary key, state text not null, amount text not null)';
const signed = ['--by', 'olivia', '--reason', 'the mail server is back'];

let all: OperatedDatabases;
let folder: string;
/** A configuration without a module, and one with the application of the tests. */
let files: Readonly<Record<'plain' | 'module', string>>;

beforeAll(async () => {
  [all, folder] = await Promise.all([operatedDatabases(), mkdtemp(join(tmpdir(), 'framework-operation-'))]);
  await Promise.all([all.first, all.second].map((database) => database.query(transfersTable)));
  const { framework } = all.tree;
  const write = async (name: string, sections: object): Promise<string> => {
    const file = join(folder, name);
    await writeFile(file, JSON.stringify({ framework: { ...framework, ...sections } }));
    return file;
  };
  const module = fileURLToPath(new URL('fixtures/operated-application.ts', import.meta.url));
  files = {
    plain: await write('plain.json', { relay: [{ name: 'publish' }] }),
    module: await write('module.json', { operator: { module } }),
  };
});
afterAll(() => rm(folder, { recursive: true }));

beforeEach(async () => {
  for (const database of [all.first, all.second]) {
    await database.reset();
    await database.query('truncate transfers');
  }
});

/** Runs a command with the configuration of the application. */
function run(command: string, more: readonly string[] = [], options?: RunOptions): Promise<Ended> {
  return runHere([...command.split(' '), ...more, '--config', files.module], options);
}

/** Runs a command while the second database refuses connections. */
async function runWithoutSecond(command: string, more: readonly string[] = []): Promise<Ended> {
  await all.proxy.refuse();
  try {
    return await run(command, more);
  } finally {
    await all.proxy.accept();
  }
}

function parsed({ stdout }: Ended): unknown {
  return JSON.parse(stdout);
}

function linesOf({ stdout }: Ended): readonly unknown[] {
  return stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as unknown);
}

const missing = { failures: [{ shards: ['1/0'], code: 'shard-unavailable' }] };
const anyText = expect.any(String) as string;

describe('the events of two logs', () => {
  let ids: readonly string[];

  beforeEach(async () => {
    const { first, second } = all;
    await first.register('notify');
    ids = await first.write('a', [1, 2, 3]);
    await second.write('b', [1], { principal: 'bob' });
  });

  test('are searched by model, and by principal only with a time', async () => {
    const [ofModel, ofBob, unbounded] = await Promise.all([
      run('events search --model a --limit 2'),
      run('events search --principal bob --since 2026-01-01'),
      run('events search --principal bob'),
    ]);
    expect(parsed(ofModel)).toMatchObject({
      items: [
        { shards: ['0/0'], event: { modelId: 'a', modelVersion: 3 }, deliveries: [{ state: 'pending' }] },
        { event: { modelVersion: 2 } },
      ],
      failures: [],
    });
    expect(ofModel.code).toBe(0);
    const { next } = parsed(ofModel) as { next: string };
    expect(parsed(await run('events search --model a', ['--after', next]))).toMatchObject({
      items: [{ event: { modelVersion: 1 } }],
    });
    expect(parsed(ofBob)).toMatchObject({ items: [{ shards: ['1/0'], event: { principal: 'bob' } }] });
    expect(unbounded).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('since') as string,
    });
  });

  test('are shown one by one, with what stands in the way', async () => {
    const [known, unknown, asTable] = await Promise.all([
      run('events show', [ids[0]!]),
      run('events show nowhere'),
      run('events show --output table', [ids[0]!]),
    ]);
    expect(parsed(known)).toMatchObject({
      items: [{ event: { id: ids[0] }, standings: [{ handler: 'notify' }] }],
    });
    expect(unknown).toMatchObject({ code: 3 });
    expect(asTable.stdout).toMatch(/payload +\{"version":1\}/);
    expect(asTable.stdout).toMatch(/^notify +pending/m);
  });

  test('are exported as lines, with large payloads, in pages', async () => {
    await all.first.write(
      'c',
      Array.from({ length: 250 }, (_each, index) => index + 1),
    );
    await all.first.query(
      `update eventlog.events set payload = jsonb_build_object('text', repeat('x', 70000)) where id = $1`,
      [ids[0]],
    );
    const exported = await run('events export');
    expect(exported.code).toBe(0);
    const lines = linesOf(exported) as {
      event: { id: string; payload: { text?: string }; omitted?: boolean };
    }[];
    expect(lines).toHaveLength(254);
    expect(new Set(lines.map(({ event }) => event.id)).size).toBe(254);
    expect(lines.find(({ event }) => event.id === ids[0])?.event).toMatchObject({
      payload: { text: 'x'.repeat(70_000) },
    });
    const [ofShard, ofBob, ofModel] = await Promise.all([
      run('events export --shard 1/0'),
      run('events export --principal bob'),
      run('events export --model a'),
    ]);
    expect([ofShard, ofBob, ofModel].map((each) => linesOf(each).length)).toEqual([1, 1, 3]);
  });

  test('are exported as far as a database answers, the other one whole', async () => {
    await all.second.write(
      'long',
      Array.from({ length: 250 }, (_each, index) => index + 1),
    );
    let pageCount = 0;
    all.proxy.judge = ({ direction, bytes }) => {
      if (direction === 'to-server' && bytes.includes('order by e.epoch desc')) pageCount++;
      return pageCount > 2 ? 'cut' : 'forward';
    };
    const exported = await run('events export');
    all.proxy.judge = () => 'forward';
    expect(exported).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: 1\/0: /) as string });
    const lines = linesOf(exported) as { shards: readonly string[]; event: { id: string } }[];
    expect(lines.filter(({ shards }) => shards[0] === '0/0')).toHaveLength(3);
    expect(lines).toHaveLength(3 + 200);
    expect(new Set(lines.map(({ event }) => event.id)).size).toBe(lines.length);
  });

  test('are followed until there are enough', async () => {
    let isWritten = false;
    const ended = await run('events tail --last 1 --count 3 --interval-ms 20 --type ThingChangedEvent', [], {
      onOutput: () => {
        if (isWritten) return;
        isWritten = true;
        void all.first.write('d', [1]).then(() => all.second.write('e', [1]));
      },
    });
    expect(linesOf(ended)).toMatchObject([
      { event: { modelId: anyText } },
      { event: { modelId: 'd' } },
      { event: { modelId: 'e' } },
    ]);
    expect(ended.code).toBe(0);
  });

  test('of a database that is up are shown while the other one is down', async () => {
    const [searched, exported] = [
      await runWithoutSecond('events search'),
      await runWithoutSecond('events export'),
    ];
    expect(parsed(searched)).toMatchObject({ items: [{}, {}, {}], ...missing });
    expect(linesOf(exported)).toHaveLength(3);
    for (const { code, stderr } of [searched, exported]) {
      expect(code).toBe(1);
      expect(stderr).toMatch(/^error: 1\/0: shard-unavailable: .*ECONNREFUSED/);
    }
  });
});

describe('the history of a model', () => {
  test('is shown, and is without fault', async () => {
    await all.first.write('a', [1, 2, 3]);
    const [shown, verified, unknown] = await Promise.all([
      run('model a'),
      run('model a --verify'),
      run('model nobody --verify'),
    ]);
    expect(parsed(shown)).toMatchObject({
      items: [1, 2, 3].map((modelVersion) => ({ event: { modelVersion } })),
    });
    expect(shown.code).toBe(0);
    expect(parsed(verified)).toEqual({ id: 'a', count: 3, firstVersion: 1, faults: [], failures: [] });
    expect(verified.code).toBe(0);
    expect(unknown.code).toBe(3);
  });

  test('has faults if a version is missing, occurs twice, or is in two databases', async () => {
    await all.first.write('gap', [2, 3, 5, 9]);
    await all.first.write('twice', [1, 2, 2]);
    await all.first.write('both', [1]);
    await all.second.write('both', [2]);
    const ended = await Promise.all(['gap', 'twice', 'both'].map((id) => run(`model ${id} --verify`)));
    expect(ended.map(({ code }) => code)).toEqual([3, 3, 3]);
    expect(ended.map(parsed)).toMatchObject([
      { firstVersion: 2, faults: ['Version 4 is missing (0/0).', 'Version 6 to 8 are missing (0/0).'] },
      { faults: [expect.stringMatching(/^Version 2 occurs twice, in the actions/)] },
      { faults: ['Several databases have a history of the model: 0/0; 1/0.'] },
    ]);
  });

  test('has a fault if a version occurs twice where a page ends', async () => {
    const versions = Array.from({ length: 1_000 }, (_each, index) => index + 1);
    await all.first.query(
      `insert into eventlog.events (id, epoch, action_id, ordinal, namespace, action_name, action_params, principal, model_id, model_name,
         model_version, event_type, payload, headers, started_date, created_date, slot, early_xid)
       select gen_random_uuid(), (select max(epoch) from eventlog.epochs), gen_random_uuid(), 0, 'test', 'ChangeThing', '{}', 'alice',
         'long', 'Thing', version, 'ThingChangedEvent', '{}', '{}', now(), now(), 0, false
       from unnest($1::integer[]) as versions (version)`,
      [[...versions, 1_000]],
    );
    expect(parsed(await run('model long --verify'))).toMatchObject({
      count: 1_001,
      faults: [expect.stringMatching(/^Version 1000 occurs twice/)],
    });
  });

  test('is without fault if another model has the same id', async () => {
    await all.first.write('shared', [1, 2]);
    await all.first.query(`update eventlog.events set model_name = 'Other' where model_id = 'shared'`);
    await all.first.write('shared', [1, 2, 3]);
    await all.second.write('shared', [1]);
    await all.second.query(`update eventlog.events set model_name = 'Third' where model_id = 'shared'`);
    expect(parsed(await run('model shared --verify'))).toMatchObject({ count: 6, faults: [] });
  });

  test('is not proved while a database is down', async () => {
    await all.first.write('a', [1]);
    const verified = await runWithoutSecond('model a --verify');
    expect(verified.code).toBe(1);
    expect(parsed(verified)).toMatchObject({ count: 1, faults: [], ...missing });
  });
});

describe('consumers', () => {
  beforeEach(async () => {
    for (const database of [all.first, all.second]) {
      await database.register('notify');
      await database.register('publish');
    }
  });

  test('are listed, relays alone as well', async () => {
    const plain = ['--config', files.plain];
    const [consumers, relays, asTable] = await Promise.all([
      runHere(['consumers', ...plain]),
      runHere(['relays', ...plain]),
      runHere(['consumers', '--output', 'table', ...plain]),
    ]);
    expect(parsed(consumers)).toMatchObject({
      items: [
        { handler: 'notify', isRelay: false, databases: [{ shards: ['0/0'] }, { shards: ['1/0'] }] },
        { handler: 'publish', isRelay: true },
      ],
      failures: [],
    });
    expect(parsed(relays)).toMatchObject({ items: [{ handler: 'publish' }] });
    expect(asTable.stdout).toMatch(/^HANDLER +KIND[^]*^publish +relay +1\/0 +no +0/m);
  });

  test('are paused, resumed and retired with a record', async () => {
    const paused = await run('pause notify --yes', signed);
    expect(paused.code).toBe(0);
    expect(parsed(await run('consumers'))).toMatchObject({
      items: [{ handler: 'notify', databases: [{ paused: true }, { paused: true }] }, {}],
    });
    expect(await run('resume notify --yes', signed)).toMatchObject({ code: 0 });
    expect(await run('retire notify --yes', signed)).toMatchObject({ code: 0 });
    expect(parsed(await run('consumers'))).toMatchObject({ items: [{ handler: 'publish' }] });
    const audit = await run('audit');
    expect(parsed(audit)).toMatchObject({
      items: [
        { operation: 'retire', actor: 'olivia', shards: ['0/0'], ended: { outcome: 'done' } },
        { operation: 'resume' },
        { operation: 'pause' },
        { shards: ['1/0'] },
        {},
        {},
      ],
    });
    expect(await run('pause nobody --yes', signed)).toMatchObject({ code: 2 });
  });

  test('are shown and paused where their database is up', async () => {
    const [listed, paused] = [
      await runWithoutSecond('relays'),
      await runWithoutSecond('pause notify --yes', signed),
    ];
    expect(listed.code).toBe(1);
    expect(parsed(paused)).toMatchObject({ items: [{ shards: ['0/0'] }], ...missing });
    expect(paused.code).toBe(1);
  });
});

describe('dead letters', () => {
  let ids: readonly string[];

  beforeEach(async () => {
    const { first, second } = all;
    for (const database of [first, second]) await database.register('notify');
    ids = await first.write('a', [1, 2, 3]);
    await first.kill('notify', ids, 'mailbox full\n    at send');
    await second.kill('notify', await second.write('b', [1]), 'no such user');
  });

  test('are listed by error, one by one, and shown', async () => {
    const [groups, single, shown, unblocked, mixed] = await Promise.all([
      run('dead-letters list'),
      run('dead-letters list --events --error-line', ['mailbox full']),
      run('dead-letters show --output table', [ids[0]!]),
      run('dead-letters show 00000000-0000-4000-8000-000000000000'),
      run('dead-letters list --model a'),
    ]);
    expect(parsed(groups)).toMatchObject({
      items: [
        { handler: 'notify', errorLine: 'mailbox full', count: 3, exampleEventId: ids[0] },
        { errorLine: 'no such user', count: 1, shards: ['1/0'] },
      ],
    });
    expect(parsed(single)).toMatchObject({ items: ids.map((id) => ({ event: { id }, dead: true })) });
    expect(shown.stdout).toMatch(/handler +notify[^]*mailbox full/);
    expect(unblocked.code).toBe(3);
    expect(mixed).toMatchObject({ code: 2, stderr: expect.stringContaining('--events') as string });
  });

  test('are only counted by a dry run, which needs no reason', async () => {
    const dry = await run('dead-letters replay --handler notify --dry-run');
    expect(dry.code).toBe(0);
    expect(parsed(dry)).toMatchObject({ dryRun: true, count: 4, changeIds: [] });
    expect(await all.first.audit()).toEqual([]);
    expect(parsed(await run('dead-letters list'))).toMatchObject({ items: [{ count: 3 }, {}] });
  });

  test('are replayed with a reason, and a second time there is nothing to do', async () => {
    const replayed = await run('dead-letters replay --handler notify --yes', signed);
    expect(replayed.code).toBe(0);
    expect(parsed(replayed)).toMatchObject({
      dryRun: false,
      count: 4,
      mayBeMore: false,
      changeIds: [anyText],
      items: [
        { shards: ['0/0'], count: 3 },
        { shards: ['1/0'], count: 1 },
      ],
    });
    expect(parsed(await run('dead-letters list'))).toMatchObject({ items: [] });
    expect(parsed(await run('dead-letters replay --handler notify --yes', signed))).toMatchObject({
      count: 0,
      changeIds: [],
    });
  });

  test('are skipped by a person who says yes, and kept by one who does not', async () => {
    const words = ['--event', ids[0]!, ...signed];
    const kept = await run('dead-letters skip', words, { answer: 'no\n' });
    expect(kept).toMatchObject({ code: 2 });
    expect(kept.stderr).toContain('Skip 1 dead letters? [y/N]');
    expect(await run('dead-letters skip', words, { answer: '' })).toMatchObject({ code: 2 });
    expect(await all.first.audit()).toEqual([]);
    const skipped = await run('dead-letters skip', words, { answer: 'y\n' });
    expect(skipped).toMatchObject({ code: 0 });
    expect(skipped.stdout).toMatch(/^0\/0 +1$/m);
    expect(parsed(await run('dead-letters list'))).toMatchObject({ items: [{ count: 2 }, {}] });
  });

  test('are not changed without a filter, without a reason, and if nobody can be asked', async () => {
    const refused = await Promise.all([
      run('dead-letters skip --yes', signed),
      run('dead-letters skip --handler notify --yes'),
      run('dead-letters skip --handler notify', signed),
      run('dead-letters replay --handler nobody --yes', signed),
    ]);
    expect(refused.map(({ code }) => code)).toEqual([2, 2, 2, 2]);
    expect(refused.map(({ stderr }) => stderr)).toEqual([
      expect.stringContaining('without a filter'),
      expect.stringContaining('--reason'),
      expect.stringContaining('--yes'),
      expect.stringContaining('nobody'),
    ]);
    expect(await all.first.audit()).toEqual([]);
  });

  test('are not changed because a variable says that nobody says yes', async () => {
    const words = ['--event', ids[0]!, ...signed];
    vi.stubEnv('FRAMEWORK_CLI_YES', 'false');
    expect(await run('dead-letters skip', words)).toMatchObject({ code: 2 });
    vi.stubEnv('FRAMEWORK_CLI_YES', 'maybe');
    const unclear = await run('dead-letters skip', words);
    expect(unclear).toMatchObject({ code: 2 });
    expect(unclear.stderr).toContain('FRAMEWORK_CLI_YES must be true or false');
    expect(await all.first.audit()).toEqual([]);
    vi.stubEnv('FRAMEWORK_CLI_YES', 'true');
    vi.stubEnv('FRAMEWORK_CLI_DRY_RUN', '');
    expect(parsed(await run('dead-letters skip', words))).toMatchObject({ dryRun: false, count: 1 });
    vi.unstubAllEnvs();
  });

  test('are replayed where their database is up', async () => {
    const replayed = await runWithoutSecond('dead-letters replay --handler notify --yes', signed);
    expect(replayed.code).toBe(1);
    expect(parsed(replayed)).toMatchObject({ count: 3, items: [{ shards: ['0/0'] }], ...missing });
  });
});

describe('what the application adds', () => {
  beforeEach(async () => {
    for (const [database, name] of [
      [all.first, 't'],
      [all.second, 'u'],
    ] as const)
      await database.query(
        `insert into transfers select '${name}-' || n, 'sent', n::text from generate_series(1, 5) n`,
      );
  });

  test('is a view, of which pages are read until there are enough', async () => {
    const [transfers, view, names, asTable, unknown] = await Promise.all([
      run('transfers'),
      run('view transfers'),
      run('view'),
      run('transfers --output table'),
      run('view letters'),
    ]);
    expect(parsed(transfers)).toMatchObject({
      items: { length: 10, 0: { id: 't-1', amount: '1' } },
      failures: [],
    });
    expect(view).toEqual(transfers);
    expect(parsed(names)).toEqual({ views: [{ name: 'transfers', summary: anyText }] });
    expect(asTable.stdout).toMatch(/^ID +STATE +AMOUNT +SHARDS\nt-1 +sent +1 /);
    expect(unknown).toMatchObject({ code: 2, stderr: expect.stringContaining('only transfers') as string });
  });

  test('is an explanation, whose shards stand side by side', async () => {
    const [asTable, data, unknown] = await Promise.all([
      run('why t-1 --output table'),
      run('why t-1'),
      run('why nothing'),
    ]);
    expect(asTable.stdout).toMatch(
      /^The transfer waits[^]*^ +SOURCE +TARGET\nshard +0\/0 +1\/0\nstate +has nothing/m,
    );
    expect(parsed(data)).toMatchObject({ kind: 'extension', data: { id: 't-1' }, sides: [{}, {}] });
    expect(unknown.code).toBe(3);
  });

  test('is an invariant, which is checked in steps over all databases', async () => {
    expect(await run('check amounts')).toMatchObject({ code: 0 });
    await all.second.query(`update transfers set amount = '-7' where id = 'u-5'`);
    const [found, listed] = await Promise.all([run('check amounts'), run('check amounts --output table')]);
    expect(found.code).toBe(3);
    expect(parsed(found)).toMatchObject({
      invariants: [
        {
          name: 'amounts',
          examinedCount: expect.any(Number) as number,
          violationCount: 1,
          violations: [{ id: 'u-5', text: 'The amount is -7.', shards: ['1/0'] }],
          failures: [],
        },
      ],
    });
    expect(listed.stdout).toMatch(/^ {2}1\/0 u-5: The amount is -7\.$/m);
  });

  test('is an invariant that cannot be checked where a database is down, or its check fails', async () => {
    const away = await runWithoutSecond('check amounts');
    expect(away.code).toBe(1);
    expect(parsed(away)).toMatchObject({ invariants: [{ examinedCount: 5, violationCount: 0, ...missing }] });
    const broken = await run('check');
    expect(broken.code).toBe(1);
    expect(parsed(broken)).toMatchObject({
      invariants: [{ name: 'amounts' }, { name: 'broken', failures: [{ code: 'internal' }] }],
    });
    expect(`${broken.stdout}${broken.stderr}`).not.toContain('canary');
    const view = await runWithoutSecond('transfers');
    expect(parsed(view)).toMatchObject({ items: { length: 5 }, ...missing });
    expect(view.code).toBe(1);
  });

  test('is a document, written to a file or to the output', async () => {
    const file = join(folder, 'openapi.json');
    expect(await run('openapi', [file])).toMatchObject({ code: 0, stdout: '' });
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual({ openapi: '3.1.0' });
    expect(parsed(await run('openapi'))).toEqual({ openapi: '3.1.0' });
    expect(await run('asyncapi')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has no document asyncapi') as string,
    });
  });

  test('comes from a module, as its commands say without one', async () => {
    const commands = ['transfers', 'view', 'view letters', 'check', 'openapi', 'asyncapi'];
    const ended = await Promise.all(
      commands.map((command) => runHere([...command.split(' '), '--config', files.plain])),
    );
    for (const each of ended)
      expect(each).toEqual({
        code: 2,
        stdout: '',
        stderr: expect.stringMatching(/come from .*: name it in framework\.operator\.module\n$/) as string,
      });
  });
});
