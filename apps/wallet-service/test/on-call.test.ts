import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FaultProxy } from '@framework/testing';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { runHere } from '../../../packages/cli/test/fixtures/command-here.js';
import { rowsOf } from './database-session.js';
import { exerciseCause, exerciseCommands } from './exercise.js';
import { startProxiedService } from './start-proxied-service.js';
import { type TestService, configTree } from './start-test-service.js';

const patience = { timeout: 30_000, interval: 50 };

let service: TestService;
let proxy: FaultProxy;
let stop: () => Promise<void>;
let folder: string;
let config: string;

beforeAll(async () => {
  ({ service, proxy, stop } = await startProxiedService({
    login: 'owner',
    mexico: { 'statement-timeout-ms': 2_000, 'acquisition-timeout-ms': 3_000 },
    delivery: {
      'poll-max-ms': 100,
      'cursor-save-ms': 20,
      retry: { 'attempts-max': 1, 'backoff-max-ms': 200 },
    },
  }));
  folder = await mkdtemp(join(tmpdir(), 'on-call-'));
  config = join(folder, 'wallet.json');
  const module = fileURLToPath(new URL('../src/operator-module.ts', import.meta.url));
  const tree = configTree(service, { login: 'owner', mexicoPort: proxy.port, operator: { module } });
  await writeFile(config, JSON.stringify(tree));
});
afterAll(async () => {
  await stop();
  await rm(folder, { recursive: true });
});

/** The commands of one exercise, one after the other. */
class Exercise {
  readonly #commands: string[];

  constructor(title: string) {
    this.#commands = [...exerciseCommands(title)];
  }

  /** Runs the next command, which must begin with these words, and returns what it says to a person. */
  async next(
    begin: string,
    ids: Readonly<Record<string, string>> = {},
  ): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
    const command = this.#commands.shift() ?? '';
    assert.ok(command.startsWith(begin), `The next command is ${command}`);
    const words = [...command.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, word = '']) => quoted ?? word);
    const given = words.map((word) => ids[word] ?? word);
    return runHere([...given, '--config', config, '--output', 'table', '--timeout-ms', '3000']);
  }

  get left(): readonly string[] {
    return this.#commands;
  }
}

test('a transfer hangs', async () => {
  const exercise = new Exercise('A transfer hangs');
  const source = await service.client.openWallet({ country: 'DE' });
  const dest = await service.client.openWallet({ country: 'MX' });
  await proxy.refuse();
  const transfer = { sourceId: source.id, destId: dest.id, amount: '40' };
  const id = String((await service.client.post('/transfers', transfer)).body['id']);

  const inTransit = await exercise.next('view transfers-in-transit');
  expect(inTransit).toMatchObject({ code: 1, stderr: expect.stringContaining('1/0') as string });
  expect(inTransit.stdout).toContain(id);
  expect((await exercise.next('why', { $TRANSFER: id })).stdout).toContain(
    'The shard 1/0 of its destination does not answer',
  );
  const found = await exercise.next('doctor');
  expect(found).toMatchObject({ code: 3, stdout: expect.stringContaining('database-unreachable') as string });

  await proxy.accept();
  await vi.waitFor(async () => {
    expect((await service.client.get(`/transfers/${id}`)).body['state']).toBe('COMPLETED');
  }, patience);
  expect((await exercise.next('why', { $TRANSFER: id })).stdout).toContain('is complete');
  expect(await exercise.next('check')).toMatchObject({ code: 0 });
  expect(exercise.left).toEqual([]);
});

test('a handler fails since the deployment', async () => {
  const exercise = new Exercise('A handler fails since the deployment');
  for (const statement of exerciseCause('A handler fails since the deployment'))
    await rowsOf(service.global, statement);
  const ids: string[] = [];
  for (const recipient of ['ada', 'bob']) {
    const { id } = await service.client.openWallet({ country: 'DE' });
    ids.push(id);
    await service.client.post(`/wallets/${id}/deposit`, { amount: '1', recipient });
  }
  const dead = 'select event_id from eventlog.blocked_models where dead';
  await vi.waitFor(async () => expect(await rowsOf(service.global, dead)).toHaveLength(2), patience);

  const listed = await exercise.next('dead-letters list');
  expect(listed.stdout).toMatch(/notify-recipient-on-deposit .*mailbox full +2 +0\/0/);
  const [, event = ''] = /([\da-f-]{36})\s*$/.exec(listed.stdout) ?? [];
  expect((await exercise.next('dead-letters show', { $EVENT: event })).stdout).toContain('mailbox full');
  expect((await exercise.next('pause')).code).toBe(0);
  await rowsOf(service.global, 'drop trigger refuse on notifications');
  expect((await exercise.next('resume')).code).toBe(0);
  expect((await exercise.next('dead-letters replay')).stdout).toContain('2 events would be changed');
  expect(await rowsOf(service.global, dead)).toHaveLength(2);
  expect((await exercise.next('dead-letters replay')).code).toBe(0);
  await vi.waitFor(async () => {
    expect(await rowsOf(service.global, 'select from notifications')).toHaveLength(2);
  }, patience);
  expect((await exercise.next('dead-letters list')).stdout).toContain('No dead letters');
  expect((await exercise.next('audit')).stdout).toMatch(/replay.*mended/);
  expect(exercise.left).toEqual([]);
});

test('the log grows and grows', async () => {
  const exercise = new Exercise('The log grows and grows');
  const { id } = await service.client.openWallet({ country: 'DE' });
  await service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
  for (const statement of exerciseCause('The log grows and grows')) await rowsOf(service.global, statement);

  expect((await exercise.next('shards')).code).toBe(0);
  const behind = /old-statistics +handler +0\/0 +no +[1-9]\d* +[1-9]/;
  expect((await exercise.next('consumers')).stdout).toMatch(behind);
  expect((await exercise.next('doctor')).stdout).not.toMatch(
    /database-unreachable|long-transaction|slot-inactive/,
  );
  expect((await exercise.next('retire')).stdout).toContain('would be made in 1 database');
  expect((await exercise.next('retire')).code).toBe(0);
  expect((await exercise.next('consumers')).stdout).not.toContain('old-statistics');
  expect((await exercise.next('audit')).stdout).toMatch(/retire.*removed in release 12/);
  expect(exercise.left).toEqual([]);
});
