import { format, inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { FakeDriver } from './fake-databases.js';
import { databaseConfig, memberConfig } from './sharding-configs.js';
import { Secret } from '../src/config/database-url.js';
import { ShardIdentifier, openDatabases, parseFrameworkConfig } from '../src/index.js';

const password = 's3cret-1';
const shard = ShardIdentifier.of(0, 0);

/** The value in every form in which it can get into a log. */
function shown(value: unknown): string {
  return [
    JSON.stringify(value),
    JSON.stringify({ ...(value as object) }),
    String(value),
    format('%s %o %O %j', value, value, value, value),
    inspect(value, { depth: 20, showHidden: true, getters: true }),
    value instanceof Error ? `${value.message} ${value.stack}` : '',
  ].join('\n');
}

test('a secret is shown only by reveal', () => {
  const secret = new Secret(password);
  expect(secret.reveal()).toBe(password);
  expect(String(secret)).toBe('******');
  expect(shown({ nested: [secret] })).not.toContain(password);
  expect(shown(secret)).not.toContain(password);
});

/** A configuration of one shard. */
function treeOf(primary: object, others: object = {}): object {
  const members = [{ member: 0, name: 'global-1', configs: { 'primary-config': primary, ...others } }];
  const sharding = {
    'default-shard': { group: 0, member: 0 },
    groups: [{ group: 0, name: 'global', members }],
  };
  return { framework: { namespace: 'com.example', sharding } };
}

describe('a configuration does not show its password', () => {
  test.each([
    ['beside the URL', { 'jdbc-url': 'jdbc:postgresql://db-1/global', password }],
    ['in the URL', { 'jdbc-url': `postgres://ann:${password}@db-1/global` }],
    [
      'in the query of the URL',
      { 'jdbc-url': `jdbc:postgresql://db-1/global?user=ann&password=${password}` },
    ],
  ])('%s', (_where, primary) => {
    const config = parseFrameworkConfig(treeOf(primary));
    const database = config.sharding.members[0]?.databases.get('primaryConfig');
    expect(database?.password?.reveal()).toBe(password);
    expect(shown(config)).not.toContain(password);
    expect(shown(database)).not.toContain(password);
    expect(shown(openDatabases(config.sharding, new FakeDriver()))).not.toContain(password);
  });
});

describe('an error does not show the password', () => {
  test.each([
    ['of a bad URL', { 'jdbc-url': `postgres://ann:${password}@db-1:port/global` }],
    ['of a URL without slashes', { 'jdbc-url': `postgres:ann:${password}@db-1/global` }],
    ['of a URL whose password is not escaped', { 'jdbc-url': `postgres://ann:12/${password}@db-1/global` }],
    ['that is in a list', { 'jdbc-url': 'jdbc:postgresql://db-1/global', password: [password] }],
    ['beside an unknown key', { 'jdbc-url': 'jdbc:postgresql://db-1/global', password, pass: password }],
    [
      'that has no space before it',
      { 'jdbc-url': 'jdbc:postgresql://db-1/global', [`password:${password}`]: null },
    ],
    [
      'that follows an equals sign',
      { 'jdbc-url': 'jdbc:postgresql://db-1/global', [`password=${password}`]: null },
    ],
    [
      'that is in the place of its key',
      { 'jdbc-url': 'jdbc:postgresql://db-1/global', [password]: 'password' },
    ],
    [
      'of a URL in the form of other databases',
      { 'jdbc-url': `jdbc:postgresql://db-1/global;password=${password}` },
    ],
    [
      'that a URL has twice',
      { 'jdbc-url': `postgres://db-1/global?password=${password}&password=${password}` },
    ],
    ['that is given in two spellings of one key', { 'jdbc-url': `jdbc:${password}`, jdbcUrl: password }],
  ])('%s', (_which, primary) => {
    const error = thrownBy(() => parseFrameworkConfig(treeOf(primary)));
    expect(error).toMatchObject({ code: 'invalid-configuration' });
    // A key is rewritten before it is shown.
    expect(shown(error)).not.toMatch(/s3cret/);
  });

  test('that is in the place of a database, with no space before it', () => {
    const tree = treeOf({ 'jdbc-url': 'jdbc:postgresql://db-1/global' }, { [`password:${password}`]: null });
    const error = thrownBy(() => parseFrameworkConfig(tree));
    expect(error).toMatchObject({ code: 'invalid-configuration' });
    expect(shown(error)).not.toMatch(/s3cret/);
  });

  test('on which two members differ', () => {
    const other = databaseConfig({ password: new Secret('s3cret-2') });
    const members = [
      memberConfig(shard, [databaseConfig()]),
      memberConfig(ShardIdentifier.of(1, 0), [other]),
    ];
    const error = thrownBy(() => openDatabases({ defaultShard: shard, members }, new FakeDriver()));
    expect(error).toMatchObject({ code: 'invalid-configuration' });
    expect(shown(error)).not.toMatch(/s3cret/);
  });
});

function thrownBy(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}
