import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

import {
  type OperatedDatabases,
  operatedDatabases,
} from '../../operator/test/fixtures/operated-databases.js';
import { runHere } from './fixtures/command-here.js';
import type { Ended } from './fixtures/command-line.js';

let all: OperatedDatabases;
let folder: string;
let config: string;

beforeAll(async () => {
  [all, folder] = await Promise.all([operatedDatabases(), mkdtemp(join(tmpdir(), 'framework-session-'))]);
  config = join(folder, 'config.json');
  await writeFile(config, JSON.stringify(all.tree));
  await all.first.register('notify');
  await all.first.write('a', [1, 2]);
});
afterAll(() => Promise.all([all.close(), rm(folder, { recursive: true })]));

function run(words: readonly string[]): Promise<Ended> {
  return runHere([...words, '--config', config]);
}

test('a command without a module reads and changes databases of PostgreSQL', async () => {
  const searched = await run(['events', 'search', '--model', 'a']);
  expect(searched).toMatchObject({ code: 0, stderr: '' });
  expect(JSON.parse(searched.stdout)).toMatchObject({ items: { length: 2 }, failures: [] });
  const signed = ['--by', 'olivia', '--reason', 'x', '--yes'];
  expect(await run(['pause', 'notify', ...signed])).toMatchObject({ code: 0 });
  expect(JSON.parse((await run(['consumers'])).stdout)).toMatchObject({
    items: [{ handler: 'notify', databases: [{ shards: ['0/0'], paused: true }] }],
  });
});

test('a command tells why a database refuses connections', async () => {
  await all.proxy.refuse();
  const { code, stderr } = await run(['events', 'search']);
  await all.proxy.accept();
  expect(code).toBe(1);
  expect(stderr).toMatch(/^error: 1\/0: shard-unavailable: .*ECONNREFUSED/);
});

/** How long work takes, in milliseconds. */
async function msOf(work: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now();
  await work();
  return performance.now() - startedMs;
}

test('a database that never answers costs its part and no more than the timeout', async () => {
  const commands = ['consumers', 'events search', 'why a', 'events export', 'audit'];
  const runAll = () =>
    Promise.all(
      [...commands, 'events tail --count 1'].map((command) =>
        run([...command.split(' '), '--timeout-ms', '2000']),
      ),
    );
  const calmMs = await msOf(() =>
    Promise.all(commands.map((command) => run([...command.split(' '), '--timeout-ms', '2000']))),
  );
  all.proxy.silence();
  try {
    let ended: Awaited<ReturnType<typeof runAll>> = [];
    const ms = await msOf(async () => (ended = await runAll()));
    // What is beyond the timeout is for the other database, and for closing.
    expect(ms).toBeLessThan(2_000 + 1_000 + 5 * calmMs);
    for (const { code, stdout, stderr } of ended) {
      expect(code).toBe(1);
      expect(stderr).toMatch(/^error: 1\/0: shard-unavailable: it has not answered within 2000 ms\n$/);
      expect(stdout).not.toBe('');
    }
  } finally {
    all.proxy.resume();
  }
});

const migrate = () => run(['migrate', 'up', '--timeout-ms', '500']);

test('a migration waits for a server that never answers no longer than the timeout', async () => {
  const calmMs = await msOf(migrate);
  all.proxy.silence();
  try {
    let ended: Awaited<ReturnType<typeof migrate>> | undefined;
    const ms = await msOf(async () => (ended = await migrate()));
    expect(ms).toBeLessThan(500 + 2_000 + 5 * calmMs);
    expect(ended?.code).toBe(1);
    expect(JSON.parse(ended?.stdout ?? '')).toMatchObject({
      databases: [{ applied: [] }, { applied: null }],
    });
  } finally {
    all.proxy.resume();
  }
});
