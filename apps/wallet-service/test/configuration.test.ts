import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import { openRelays } from '@framework/relay/config';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { readConfigFile as readConfig } from '../../../packages/service/src/settings/service-config.js';
import { readServiceSettings as readSettings } from '../../../packages/service/src/settings/service-settings.js';
import { walletService } from '../src/wallet-service.js';

const readConfigFile = (file: string): Promise<FrameworkConfig> =>
  readConfig(walletService, { file, setBy: 'WALLET_CONFIG' });
const readServiceSettings = (environment: NodeJS.ProcessEnv): ReturnType<typeof readSettings> =>
  readSettings(walletService, environment);

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'wallet-config-'));
});
afterAll(() => rm(folder, { recursive: true }));

/** The configuration of http.md with one shard. */
const yaml = `
framework:
  namespace: com.example.wallet
  sharding:
    default-shard: { group: 0, member: 0 }
    groups:
      - group: 0
        name: global
        members:
          - member: 0
            name: global-1
            configs:
              primary-config:
                jdbc-url: jdbc:postgresql://127.0.0.1:5432/global
                username: wallet
                password: hunter2
                driver-class-name: org.postgresql.Driver
                maximum-pool-size: 20
`;

/** A few lines that expand to 59,049 values. */
const aliasBomb = ['a', 'b', 'c', 'd', 'e']
  .map(
    (name, index, names) =>
      `${name}: &${name} [${Array(9)
        .fill(index === 0 ? 'x' : `*${names[index - 1]}`)
        .join()}]`,
  )
  .join('\n');

describe('a configuration file', () => {
  test('is read as YAML in kebab-case', async () => {
    const { namespace, sharding } = await read(yaml);
    expect(namespace).toBe('com.example.wallet');
    expect(sharding.members).toHaveLength(1);
    const database = sharding.members[0]?.databases.get('primaryConfig');
    expect(database).toMatchObject({
      address: 'postgresql://127.0.0.1:5432/global',
      username: 'wallet',
      poolMax: 20,
    });
    expect(database?.password?.reveal()).toBe('hunter2');
  });

  test('is read as JSON in camelCase', async () => {
    const primaryConfig = { jdbcUrl: 'postgres://127.0.0.1/global' };
    const members = [{ member: 0, name: 'global-1', configs: { primaryConfig } }];
    const sharding = {
      defaultShard: { group: 0, member: 0 },
      groups: [{ group: 0, name: 'global', members }],
    };
    const config = await read(JSON.stringify({ framework: { namespace: 'a.b', sharding } }, undefined, '\t'));
    expect(config.sharding.members[0]?.name).toBe('global-1');
  });

  test.each([
    [
      'a key twice',
      yaml.replace('name: global-1', 'name: global-1\n            name: x'),
      /line 12, column 13: Map keys/,
    ],
    ['a quote that does not end', yaml.replace('hunter2', '"hunter2'), /line 19, column 1: Missing closing/],
    ['an indentation that does not fit', yaml.replace('  sharding', ' sharding'), /line \d+, column \d+: /],
    ['a reserved character', yaml.replace('hunter2', '@hunter2'), /line 16, column 27: /],
    ['text after a value', yaml.replace('hunter2', '"x" hunter2'), /line 16, column \d+: /],
    ['a tag', yaml.replace('hunter2', '!hunter2 x'), /line 16, column 27: /],
    ['a backslash', yaml.replace('hunter2', '"\\hunter2"'), /line 16, column \d+: /],
    ['an alias', yaml.replace('hunter2', '*hunter2'), /without an anchor/],
    ['aliases that repeat too much', aliasBomb, /wallet.yaml: expands too many aliases/],
  ])('is refused with line and column but without its text: %s', async (_name, text, message) => {
    const error = await refusalOf(text);
    expect(error.message).toMatch(message);
    expect(error.message).toContain('wallet.yaml');
    expect(error.message).not.toContain('hunter2');
  });

  test('is refused with the path of a section that contains itself', async () => {
    const { faults } = await refusalOf('framework: &a { sharding: *a }');
    expect(faults).toEqual([{ path: 'framework.sharding', message: 'contains itself' }]);
  });

  test.each([
    ['a space that is missing', '{ jdbc-url: postgres://127.0.0.1/global, password:hunter2 }'],
    ['an equals sign in place of a colon', '{ jdbc-url: postgres://127.0.0.1/global, password=hunter2 }'],
    ['key and value exchanged', '{ jdbc-url: postgres://127.0.0.1/global, hunter2: password }'],
    ['parameters as in other URLs', "{ jdbc-url: 'jdbc:postgresql://127.0.0.1/global;password=hunter2' }"],
  ])('is refused without the password: %s', async (_name, section) => {
    const error = await refusalOf(yaml.replace(/primary-config:[^]*/, `primary-config: ${section}`));
    expect(JSON.stringify([error.message, error.faults])).not.toContain('hunter2');
  });

  test('is refused with the paths of all faults', async () => {
    const text = yaml.replace(
      'maximum-pool-size: 20',
      'maximum-pool-size: many\n                pasword: hunter2',
    );
    const { faults, message } = await refusalOf(text.replace('name: global-1', 'nam: global-1'));
    const member = 'framework.sharding.groups[0].members[0]';
    expect(faults.map(({ path }) => path).toSorted()).toEqual([
      `${member}.configs.primary-config.maximum-pool-size`,
      `${member}.configs.primary-config.pasword`,
      `${member}.nam`,
      `${member}.name`,
    ]);
    expect(message).not.toContain('hunter2');
    expect(faults.filter((fault) => fault.message === 'is missing').map(({ path }) => path)).toEqual([
      `${member}.name`,
    ]);
  });

  test('is refused when it is missing', async () => {
    const file = join(folder, 'missing.yaml');
    await expect(readConfigFile(file)).rejects.toMatchObject({ code: 'invalid-configuration' });
    await expect(readConfigFile(file)).rejects.toThrow(`WALLET_CONFIG: ${file} cannot be read (ENOENT)`);
  });
});

describe('the environment', () => {
  test('may be empty', () => {
    expect(readServiceSettings({ PORT: '', WALLET_CONFIG: '', WALLET_ROLE: '' })).toEqual({
      role: 'all',
      configFile: undefined,
      firstRelay: [],
      host: '127.0.0.1',
      isProduction: false,
      port: 8080,
      connectionsMax: undefined,
      docs: true,
      logLevel: 'warn',
      shutdownTimeoutMs: 10_000,
    });
  });

  test('configures everything', () => {
    const process = { WALLET_ROLE: 'worker', WALLET_CONFIG: 'a.yaml', SHUTDOWN_TIMEOUT_MS: '500' };
    const served = { HOST: '::1', PORT: '0', CONNECTIONS_MAX: '50', WALLET_DOCS: 'off' };
    expect(readServiceSettings({ ...process, ...served, NODE_ENV: 'production' })).toEqual({
      role: 'worker',
      configFile: 'a.yaml',
      firstRelay: [],
      host: '::1',
      isProduction: true,
      port: 0,
      connectionsMax: 50,
      docs: false,
      logLevel: 'info',
      shutdownTimeoutMs: 500,
    });
  });

  test.each(['65536', '-1', '80a', ' 80', '0x50', '1e3', '8080.5'])('is refused with PORT=%s', (PORT) => {
    expect(() => readServiceSettings({ PORT })).toThrow('PORT: must be a whole number from 0 to 65535');
  });

  test.each(['http', 'worker', 'relay'])(
    'is refused with WALLET_ROLE=%s and no WALLET_CONFIG',
    (WALLET_ROLE) => {
      expect(() => readServiceSettings({ WALLET_ROLE })).toThrow(/WALLET_ROLE: .* set WALLET_CONFIG/);
    },
  );

  test.each([
    ['nats', 'nats', 'nats://127.0.0.1:4222'],
    ['amqp', 'rabbitmq', 'amqp://guest:guest@127.0.0.1'],
    ['kafka', 'kafka', 'kafka://127.0.0.1:9092'],
    ['redis', 'redis', 'redis://127.0.0.1'],
  ])('lets embedded databases relay to a %s URL in WALLET_RELAY', (_protocol, kind, WALLET_RELAY) => {
    expect(readServiceSettings({ WALLET_RELAY }).firstRelay).toMatchObject([
      { name: `events-to-${kind}`, startFrom: 'beginning', [kind]: {} },
    ]);
  });

  test.each([
    ['nats://ann:p%40ss@127.0.0.1:4222', { username: 'ann', password: 'p@ss' }],
    ['nats://t%zz@127.0.0.1:4222', { token: 't%zz' }],
  ])('takes user, password and token out of WALLET_RELAY=%s', (WALLET_RELAY, credentials) => {
    const servers = ['nats://127.0.0.1:4222'];
    expect(readServiceSettings({ WALLET_RELAY }).firstRelay).toMatchObject([
      { nats: { servers, ...credentials } },
    ]);
  });

  test('takes the address out of a kafka URL in WALLET_RELAY, without hiding a user from those who refuse one', async () => {
    expect(relayTo('kafka://127.0.0.1:9092/')).toMatchObject([
      { kafka: { bootstrapServers: ['127.0.0.1:9092'], createTopics: true } },
    ]);
    const withUser = { namespace: 'com.example', relay: relayTo('kafka://ann:s3cret@127.0.0.1:9092') };
    await expect(openRelays(withUser)).rejects.toThrow('without a protocol, user or password');
  });

  test.each(['localhost:4222', 'https://partner.example', 'toString:'])(
    'is refused with WALLET_RELAY=%s',
    (WALLET_RELAY) => {
      expect(() => readServiceSettings({ WALLET_RELAY })).toThrow(
        'WALLET_RELAY: must be the URL of a broker',
      );
    },
  );

  test('is refused with WALLET_RELAY beside a configuration file', () => {
    const both = { WALLET_RELAY: 'redis://127.0.0.1', WALLET_CONFIG: 'a.yaml' };
    expect(() => readServiceSettings(both)).toThrow(/WALLET_RELAY: .* in the file of WALLET_CONFIG/);
  });

  test('is refused with all its faults', () => {
    const faulty = { WALLET_ROLE: 'none', PORT: 'x', LOG_LEVEL: 'loud', SHUTDOWN_TIMEOUT_MS: '0' };
    expect(() => readServiceSettings({ ...faulty, WALLET_DOCS: 'no' })).toThrow(
      /WALLET_ROLE[^]*WALLET_DOCS: must be on or off[^]*PORT[^]*LOG_LEVEL[^]*SHUTDOWN_TIMEOUT_MS/,
    );
  });
});

function relayTo(WALLET_RELAY: string): FrameworkConfig['relay'] {
  return readServiceSettings({ WALLET_RELAY }).firstRelay;
}

/** Reads a configuration from a file. */
async function read(text: string): Promise<FrameworkConfig> {
  const file = join(folder, 'wallet.yaml');
  await writeFile(file, text);
  return readConfigFile(file);
}

/** Why a configuration is refused. */
async function refusalOf(text: string): Promise<ConfigurationError> {
  const error: unknown = await read(text).catch((refusal: unknown) => refusal);
  if (error instanceof ConfigurationError) return error;
  throw new Error('The configuration was accepted', { cause: error });
}
