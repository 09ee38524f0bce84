import { ConfigurationError, parseFrameworkConfig } from '@framework/core';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { withVariables } from './service-config.js';

const withEnvironment = (tree: unknown, environment: NodeJS.ProcessEnv): unknown =>
  withVariables({}, tree, environment);

const database = 'FRAMEWORK_SHARDING_GROUPS_0_MEMBERS_0_CONFIGS_PRIMARYCONFIG';
const canary = 'Tr0ub4dor-and-3-secrets';

/** A file with one shard, in both spellings of keys. */
const tree = {
  framework: {
    namespace: 'a.b',
    sharding: {
      'default-shard': { group: 0, member: 0 },
      groups: [
        {
          group: 0,
          name: 'global',
          members: [
            {
              member: 0,
              name: 'global-1',
              configs: {
                primaryConfig: { 'jdbc-url': 'postgres://127.0.0.1/global', password: 'of the file' },
                'lock-config': { jdbcUrl: 'postgres://127.0.0.1/locks' },
              },
            },
          ],
        },
      ],
    },
  },
};

let folder: string;
let secretFile: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'wallet-environment-'));
  secretFile = join(folder, 'secret');
});
afterAll(() => rm(folder, { recursive: true }));

describe('a variable', () => {
  test('replaces a value of the file in either spelling, and the file stays as it is', () => {
    const before = JSON.stringify(tree);
    const config = parseFrameworkConfig(
      withEnvironment(tree, {
        [`${database}_PASSWORD`]: canary,
        [`${database}_JDBCURL`]: 'postgres://db-1/global',
        [`${database}_MAXIMUMPOOLSIZE`]: '5',
        FRAMEWORK_SHARDING_GROUPS_0_MEMBERS_0_CONFIGS_LOCKCONFIG_JDBCURL: 'postgres://db-2/locks',
      }),
    );
    const databases = config.sharding.members[0]?.databases;
    expect(databases?.get('primaryConfig')).toMatchObject({ address: 'postgres://db-1/global', poolMax: 5 });
    expect(databases?.get('primaryConfig')?.password?.reveal()).toBe(canary);
    expect(databases?.get('lockConfig')).toMatchObject({ address: 'postgres://db-2/locks' });
    expect(JSON.stringify(tree)).toBe(before);
  });

  test('gives what the file leaves out, in every section', () => {
    const { framework } = withEnvironment(tree, {
      FRAMEWORK_GROUPCOMMIT_PLANSMAX: '64',
      FRAMEWORK_DELIVERY_RETRY_ATTEMPTSMAX: '3',
      FRAMEWORK_HTTP_TLS_CERTFILE: '/etc/tls.crt',
      FRAMEWORK_HTTP_CORS_ORIGINS: '[https://a.example, https://b.example]',
      FRAMEWORK_RELAY_0_NAME: 'events',
      FRAMEWORK_RELAY_0_NATS_SERVERS_0: 'nats://127.0.0.1',
      FRAMEWORK_RELAY_0_NATS_CREATESTREAM: 'true',
    }) as { readonly framework: object };
    expect(framework).toMatchObject({
      groupCommit: { plansMax: 64 },
      delivery: { retry: { attemptsMax: 3 } },
      http: {
        tls: { certFile: '/etc/tls.crt' },
        cors: { origins: ['https://a.example', 'https://b.example'] },
      },
      relay: [{ name: 'events', nats: { servers: ['nats://127.0.0.1'], createStream: true } }],
    });
  });

  test('can replace the whole file, also with more than ten members of a list', () => {
    const shards = Array.from({ length: 12 }, (_, index) => {
      const group = `FRAMEWORK_SHARDING_GROUPS_${index}`;
      return {
        [`${group}_GROUP`]: String(index),
        [`${group}_NAME`]: 'g',
        [`${group}_MEMBERS_0_MEMBER`]: '0',
        [`${group}_MEMBERS_0_NAME`]: 'm',
        [`${group}_MEMBERS_0_CONFIGS_PRIMARYCONFIG_JDBCURL`]: `postgres://127.0.0.1/db${index}`,
      };
    });
    const defaultShard = {
      FRAMEWORK_SHARDING_DEFAULTSHARD_GROUP: '0',
      FRAMEWORK_SHARDING_DEFAULTSHARD_MEMBER: '0',
    };
    const environment = Object.assign({ FRAMEWORK_NAMESPACE: 'a.b', ...defaultShard }, ...shards) as object;
    const { sharding } = parseFrameworkConfig(withEnvironment({}, { ...environment }));
    expect(sharding.members).toHaveLength(12);
  });

  test('of a text is taken as it is, even if it looks like a number', () => {
    const password = '0123 # "x"';
    expect(passwordOf({ [`${database}_PASSWORD`]: password })).toBe(password);
  });

  test('without a value counts as unset', () => {
    expect(passwordOf({ [`${database}_PASSWORD`]: '', FRAMEWORK_NOTHING: '' })).toBe('of the file');
  });

  test.each([
    ['without its last line break', `${canary}\n`, canary],
    ['without its last line break of Windows', `${canary}\r\n`, canary],
    ['with all other spaces', ` a \n b \n\n`, ' a \n b \n'],
  ])('may name a file, whose contents are taken %s', async (_what, content, expected) => {
    await writeFile(secretFile, content);
    expect(passwordOf({ [`${database}_PASSWORD_FILE`]: secretFile })).toBe(expected);
  });

  test.each([
    ['FRAMEWORK_SHARDNG_DEFAULTSHARD_GROUP', 'FRAMEWORK_SHARDING_DEFAULTSHARD_GROUP'],
    [`${database}_PASWORD`, `${database}_PASSWORD`],
    [`${database}_PASWORD_FILE`, `${database}_PASSWORD_FILE`],
    [`${database}_JDBC_URL`, `${database}_JDBCURL`],
    ['FRAMEWORK_SHARDING_GROUPS_0_MEMBERS_0_CONFIGS_PRIMARY_CONFIG_PASSWORD', `${database}_PASSWORD`],
    ['FRAMEWORK_SHARDING_GROUPS_NAME', 'FRAMEWORK_SHARDING_GROUPS_0_NAME'],
    ['FRAMEWORK_HTTP_TLS_CERT', 'FRAMEWORK_HTTP_TLS_CERTFILE'],
    ['FRAMEWORK_GROUP_COMMIT', 'FRAMEWORK_GROUPCOMMIT'],
    ['FRAMEWORK_PORT', 'FRAMEWORK_HTTP'],
  ])('that has no key is refused with the nearest one: %s', (name, nearest) => {
    expect(faultsOf({ [name]: canary })).toEqual({ [name]: `is not known: did you mean ${nearest}?` });
  });

  test.each([
    ['both ways', { [`${database}_PASSWORD`]: canary, [`${database}_PASSWORD_FILE`]: '/x' }, /is set beside/],
    ['by a file that is not there', { [`${database}_PASSWORD_FILE`]: '/none' }, /cannot be read \(ENOENT\)/],
    ['beyond the end of a list', { FRAMEWORK_RELAY_1_NAME: canary }, /position 1 of a list that has 0/],
    [
      'as no YAML',
      { [`${database}_MAXIMUMPOOLSIZE`]: `{${canary}` },
      /must be written as in the configuration/,
    ],
  ])('is refused when a value is given %s, without the value', (_what, environment, message) => {
    const faults = faultsOf(environment);
    expect(Object.values(faults)).toEqual([expect.stringMatching(message)]);
    expect(JSON.stringify(faults)).not.toContain(canary);
  });

  test('is refused when its file is empty', async () => {
    await writeFile(secretFile, '\n');
    const name = `${database}_PASSWORD_FILE`;
    expect(faultsOf({ [name]: secretFile })).toEqual({ [name]: 'names a file that is empty' });
  });
});

function passwordOf(environment: NodeJS.ProcessEnv): string | undefined {
  const { sharding } = parseFrameworkConfig(withEnvironment(tree, environment));
  return sharding.members[0]?.databases.get('primaryConfig')?.password?.reveal();
}

/** The faults of an environment by variable. */
function faultsOf(environment: NodeJS.ProcessEnv): Readonly<Record<string, string>> {
  try {
    withEnvironment(tree, environment);
    return {};
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return Object.fromEntries(error.faults.map(({ path, message }) => [path, message]));
  }
}
