import { ConfigurationError, openDatabases, parseFrameworkConfig } from '@framework/core';
import { postgres } from '@framework/drizzle-adapter';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';

import { withVariables } from '../settings/service-config.js';
import { listenForOperators } from './operator-listener.js';

const logger = pino({ level: 'silent' });
const token = '0123456789abcdef0123456789abcdef';
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'operator-listener-'));
  await writeFile(join(folder, 'token'), `${token}\n`);
  await writeFile(join(folder, 'short'), 'short\n');
});
afterAll(() => rm(folder, { recursive: true }));

/** A shard whose database does not answer, and need not. */
const sharding = {
  defaultShard: { group: 0, member: 0 },
  groups: [
    {
      group: 0,
      name: 'global',
      members: [
        {
          member: 0,
          name: 'global-1',
          configs: { primaryConfig: { jdbcUrl: 'postgres://nobody@127.0.0.1:1/none' } },
        },
      ],
    },
  ],
};

type Section = Parameters<typeof listenForOperators>[0]['operator'];

async function listen(operator: Section): ReturnType<typeof listenForOperators> {
  const { sharding: parsed } = parseFrameworkConfig({ framework: { namespace: 'test', sharding } });
  const databases = openDatabases(parsed, postgres({ onWarning: () => undefined }));
  onTestFinished(() => databases.close());
  const listener = await listenForOperators({ operator }, { databases, relays: [] }, { logger });
  onTestFinished(() => listener?.close());
  return listener;
}

async function faultsOf(operator: Section): Promise<readonly string[]> {
  try {
    await listen(operator);
  } catch (error) {
    if (error instanceof ConfigurationError)
      return error.faults.map(({ path, message }) => `${path}: ${message}`);
    throw error;
  }
  throw new Error('Nothing was refused');
}

async function statusOf(url: string, given: string): Promise<number> {
  const { status } = await fetch(`${url}/about`, { headers: { authorization: `Bearer ${given}` } });
  return status;
}

test('nothing listens without a port', async () => {
  expect(await listen({})).toBeUndefined();
  expect(await listen({ token })).toBeUndefined();
});

test('it listens on the loopback address, and is read-only', async () => {
  const listener = await listen({ port: 0, token });
  const url = listener?.url ?? '';
  expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  expect(await statusOf(url, token)).toBe(200);
  expect(await statusOf(url, `${token}x`)).toBe(401);
  const about = await fetch(`${url}/about`, { headers: { authorization: `Bearer ${token}` } });
  expect(await about.json()).toMatchObject({ readOnly: true, databases: [{ shards: ['0/0'] }] });
});

test('the token can be in a file', async () => {
  const listener = await listen({ port: 0, tokenFile: join(folder, 'token') });
  expect(await statusOf(listener?.url ?? '', token)).toBe(200);
});

describe('it is refused', () => {
  test.each<[string, () => Section, RegExp]>([
    ['without a token', () => ({ port: 0 }), /^framework\.operator: needs either token or token-file$/],
    ['with two tokens', () => ({ port: 0, token, tokenFile: 'x' }), /needs either token or token-file/],
    [
      'with a short token',
      () => ({ port: 0, token: 'short' }),
      /^framework\.operator\.token: must be a text of at least 32/,
    ],
    ['with a number as token', () => ({ port: 0, token: 1 }), /^framework\.operator\.token: must be a text/],
    [
      'with a port that is none',
      () => ({ port: 65_536, token }),
      /^framework\.operator\.port: must be a whole number from 0/,
    ],
    ['with a key that nobody knows', () => ({ port: 0, token, readonly: false }), /readonly/],
    [
      'when the file of the token is missing',
      () => ({ port: 0, tokenFile: join(folder, 'missing') }),
      /^framework\.operator\.token-file: cannot be read \(ENOENT\)$/,
    ],
    [
      'when the token in the file is short',
      () => ({ port: 0, tokenFile: join(folder, 'short') }),
      /^framework\.operator\.token-file: names a file whose text must be a text of at least 32/,
    ],
  ])('%s, and says what to do', async (_when, section, expected) => {
    const faults = await faultsOf(section());
    expect(faults).toHaveLength(1);
    expect(faults[0]).toMatch(expected);
    expect(faults[0]).not.toContain(token);
  });
});

test('variables of the environment have its keys', () => {
  const tree = withVariables(
    {},
    { framework: { operator: { port: 1 } } },
    { FRAMEWORK_OPERATOR_PORT: '0', FRAMEWORK_OPERATOR_TOKEN: token, FRAMEWORK_OPERATOR_READONLY: 'false' },
  );
  expect(tree).toMatchObject({ framework: { operator: { port: 0, token, readOnly: false } } });
});
