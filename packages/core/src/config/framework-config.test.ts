import { describe, expect, test } from 'vitest';

import { ShardIdentifier } from '../id/shard-identifier.js';
import { ConfigurationError } from './configuration-errors.js';
import { parseFrameworkConfig } from './framework-config.js';
import { defaultGroupSettings } from './settings.js';

const jdbcUrl = 'jdbc:postgresql://127.0.0.1:5432/global';
const primary = { 'jdbc-url': jdbcUrl, username: 'wallet', password: 's3cret-1' };
const member = { member: 0, name: 'global-1', configs: { 'primary-config': primary } };
const group = { group: 0, name: 'global', members: [member] };

/** A complete configuration with these shards and this default. */
function treeOf(
  groups: unknown,
  defaultShard: unknown = { group: 0, member: 0 },
): { readonly framework: object } {
  return {
    framework: { namespace: 'com.example.wallet', sharding: { 'default-shard': defaultShard, groups } },
  };
}

/** A configuration of one shard with this database. */
function treeWith(database: object): unknown {
  return treeOf([{ ...group, members: [{ ...member, configs: { 'primary-config': database } }] }]);
}

/** A configuration with this delivery section. */
function treeWithDelivery(delivery: unknown): unknown {
  const { framework } = treeOf([group]);
  return { framework: { ...framework, delivery } };
}

/** A configuration with this group-commit section. */
function treeWithGroupCommit(groupCommit: unknown): unknown {
  const { framework } = treeOf([group]);
  return { framework: { ...framework, 'group-commit': groupCommit } };
}

/** The result for a configuration with this group-commit section. */
function groupCommitOf(section: unknown): unknown {
  return parseFrameworkConfig(treeWithGroupCommit(section)).groupCommit;
}

/** The username, password and address from a configuration with this database. */
function addressAndCredentials(database: object): readonly unknown[] {
  const [first] = parseFrameworkConfig(treeWith(database)).sharding.members;
  const config = first?.databases.get('primaryConfig');
  return [config?.username, config?.password?.reveal(), config?.address];
}

/** The faults of a tree by their paths, each with its message. */
function faultsOf(tree: unknown): Readonly<Record<string, string>> {
  try {
    parseFrameworkConfig(tree);
    return {};
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return Object.fromEntries(error.faults.map(({ path, message }) => [path, message]));
  }
}

const atMember = 'framework.sharding.groups[0].members[0]';
const atPrimary = `${atMember}.configs.primary-config`;

describe('a configuration', () => {
  test('is read with its defaults', () => {
    const { namespace, sharding } = parseFrameworkConfig(treeOf([group]));
    expect(namespace).toBe('com.example.wallet');
    expect(sharding.defaultShard).toBe(ShardIdentifier.of(0, 0));
    expect(sharding.members).toEqual([
      {
        shard: ShardIdentifier.of(0, 0),
        groupName: 'global',
        name: 'global-1',
        databases: new Map([['primaryConfig', expect.anything()]]),
      },
    ]);
    expect(sharding.members[0]?.databases.get('primaryConfig')).toMatchObject({
      path: atPrimary,
      name: 'primaryConfig',
      address: 'postgresql://127.0.0.1:5432/global',
      username: 'wallet',
      driverClassName: undefined,
      poolMax: 10,
      acquisitionTimeoutMs: 5_000,
      acquisitionQueueMax: 1_000,
      statementTimeoutMs: 10_000,
      idleMin: 0,
      idleTimeoutMs: 600_000,
      lifetimeMaxMs: 1_800_000,
      leakThresholdMs: 0,
    });
    expect(sharding.members[0]?.databases.get('primaryConfig')?.password?.reveal()).toBe('s3cret-1');
    expect(parseFrameworkConfig(treeOf([group])).delivery).toEqual({});
  });

  test('passes the section of delivery on without validating it, with its keys in camelCase', () => {
    const delivery = { 'lease-ms': '10 s', retry: { 'attempts-max': 3 }, unknown: [{ 'a-b': 1 }] };
    expect(parseFrameworkConfig(treeWithDelivery(delivery)).delivery).toEqual({
      leaseMs: '10 s',
      retry: { attemptsMax: 3 },
      unknown: [{ aB: 1 }],
    });
  });

  test('is read in camelCase as in kebab-case', () => {
    const camelCase = {
      framework: {
        namespace: 'com.example.wallet',
        sharding: {
          defaultShard: { group: 0, member: 0 },
          groups: [
            {
              ...group,
              members: [
                {
                  ...member,
                  configs: { primaryConfig: { jdbcUrl, username: 'wallet', password: 's3cret-1' } },
                },
              ],
            },
          ],
        },
      },
    };
    expect(parseFrameworkConfig(camelCase)).toEqual(parseFrameworkConfig(treeOf([group])));
  });

  test('keeps further named databases of a member, by their names in camelCase', () => {
    const configs = {
      ...member.configs,
      'secondary-config': { ...primary, 'maximum-pool-size': 3 },
      'lock-config': primary,
    };
    const { sharding } = parseFrameworkConfig(treeOf([{ ...group, members: [{ ...member, configs }] }]));
    const databases = sharding.members[0]?.databases;
    expect([...(databases?.keys() ?? [])].sort()).toEqual(['lockConfig', 'primaryConfig', 'secondaryConfig']);
    expect(databases?.get('secondaryConfig')).toMatchObject({
      poolMax: 3,
      path: `${atMember}.configs.secondary-config`,
    });
  });

  test('keeps a key named __proto__ like any other', () => {
    const delivery = JSON.parse('{"__proto__":{"lease-ms":1}}') as object;
    expect(Object.keys(parseFrameworkConfig(treeWithDelivery(delivery)).delivery)).toEqual(['__proto__']);
  });

  test('may have one section in several places', () => {
    const shared = { 'primary-config': primary };
    const members = [0, 1].map((position) => ({ ...member, member: position, configs: shared }));
    expect(faultsOf(treeOf([{ ...group, members }]))).toEqual({});
  });

  test('takes the credentials from the URL if the configuration has none', () => {
    const url = 'postgres://ann:in-url@db-1/global';
    expect(addressAndCredentials({ 'jdbc-url': url })).toEqual(['ann', 'in-url', 'postgres://db-1/global']);
    expect(addressAndCredentials({ 'jdbc-url': url, username: 'bob', password: 'beside' })).toEqual([
      'bob',
      'beside',
      'postgres://db-1/global',
    ]);
  });
});

describe('a faulty configuration', () => {
  test.each([undefined, null, 'text', [], 5])('is refused when it is %j', (tree) => {
    expect(Object.keys(faultsOf(tree))).toEqual(['(root)']);
  });

  test('names all of its faults at once', () => {
    const faults = faultsOf({
      framework: {
        namespace: 'not a name',
        sharding: {
          'default-shard': { group: 0 },
          groups: [
            {
              group: 256,
              name: '',
              members: [
                {
                  member: 64,
                  name: 'a',
                  configs: { 'primary-config': { 'jdbc-url': 'nowhere', 'maximum-pool-size': 0 } },
                },
              ],
            },
            { group: '1', name: 'mexico', members: [] },
          ],
        },
      },
    });
    expect(Object.keys(faults).sort()).toEqual(
      [
        'framework.namespace',
        'framework.sharding.default-shard.member',
        'framework.sharding.groups[0].group',
        'framework.sharding.groups[0].name',
        `${atMember}.member`,
        `${atPrimary}.jdbc-url`,
        `${atPrimary}.maximum-pool-size`,
        'framework.sharding.groups[1].group',
        'framework.sharding.groups[1].members',
      ].sort(),
    );
  });

  test('is refused with different messages for a missing value and for one of the wrong type', () => {
    const faults = faultsOf(
      treeOf([{ ...group, members: [{ name: 7, member: 1.5, configs: { 'primary-config': {} } }] }]),
    );
    expect(faults[`${atPrimary}.jdbc-url`]).toBe('is missing');
    expect(faults[`${atMember}.name`]).not.toBe('is missing');
    expect(faults[`${atMember}.member`]).not.toBe('is missing');
  });

  test.each([
    ['an unknown key', { ...primary, 'pool-size': 3 }, 'pool-size'],
    ['a missing URL', { username: 'wallet' }, 'jdbc-url'],
    ['a bad URL', { 'jdbc-url': 'postgresql://db-1' }, 'jdbc-url'],
    ['a name of a database that is not escaped', { 'jdbc-url': 'postgresql://db-1/a%zzb' }, 'jdbc-url'],
    ['a URL that is not a string', { 'jdbc-url': 5 }, 'jdbc-url'],
    ['a pool size that is not a whole number', { ...primary, 'maximum-pool-size': 1.5 }, 'maximum-pool-size'],
    ['a pool size that is a string', { ...primary, 'maximum-pool-size': '20' }, 'maximum-pool-size'],
  ])('is refused with %s', (_what, database, key) => {
    expect(Object.keys(faultsOf(treeWith(database)))).toEqual([`${atPrimary}.${key}`]);
  });

  test.each([
    [{ 'minimum-idle': 11 }, true],
    [{ 'minimum-idle': 10 }, false],
    [{ 'minimum-idle': 3, 'maximum-pool-size': 2 }, true],
  ])('is refused with more idle connections than a pool may have: %o', (settings, isRefused) => {
    const faults = Object.keys(faultsOf(treeWith({ ...primary, ...settings })));
    expect(faults).toEqual(isRefused ? [`${atPrimary}.minimum-idle`] : []);
  });

  test.each([
    ['maximum-pool-size', 1, 1_000],
    ['acquisition-timeout-ms', 1, 600_000],
    ['acquisition-queue-max', 0, 100_000],
    ['statement-timeout-ms', 1, 3_600_000],
    ['minimum-idle', 0, 1_000],
    ['idle-timeout', 0, 86_400_000],
    ['max-lifetime', 0, 86_400_000],
    ['leak-detection-threshold', 0, 86_400_000],
  ])('is refused when %s is not from %d to %d', (key, min, max) => {
    const faultsWith = (value: number): readonly string[] =>
      Object.keys(faultsOf(treeWith({ ...primary, 'maximum-pool-size': 1_000, [key]: value })));
    expect([min, max].flatMap(faultsWith)).toEqual([]);
    expect([min - 1, max + 1].map(faultsWith)).toEqual([[`${atPrimary}.${key}`], [`${atPrimary}.${key}`]]);
  });

  test.each([
    ['group', 255],
    ['member', 63],
  ])('is refused when the number of a %s is not from 0 to %d', (kind, max) => {
    const pathsWith = (value: number): readonly string[] => {
      const shard = { group: 0, member: 0, [kind]: value };
      const groups = [{ ...group, group: shard.group, members: [{ ...member, member: shard.member }] }];
      return Object.keys(faultsOf(treeOf(groups, shard))).sort();
    };
    expect([0, max].flatMap(pathsWith)).toEqual([]);
    const atNumber = kind === 'group' ? 'framework.sharding.groups[0].group' : `${atMember}.member`;
    const both = [`framework.sharding.default-shard.${kind}`, atNumber];
    expect([-1, max + 1].map(pathsWith)).toEqual([both, both]);
  });

  test('is refused with a key named __proto__', () => {
    const disguised = JSON.parse(`{"jdbc-url":"${jdbcUrl}","__proto__":{"username":"eve"}}`) as object;
    expect(Object.keys(faultsOf(treeWith(disguised)))).toEqual([atPrimary]);
  });

  test.each(['pasword', 'pass', 'passwords', 'url', 'user-name', 'poolSize', 'idle_timeout'])(
    'shows the key %s, which resembles a known one',
    (key) => {
      const name = key.replace('S', '-s');
      expect(faultsOf(treeWith({ ...primary, [key]: 1 }))).toEqual({
        [`${atPrimary}.${name}`]: 'is not a known key',
      });
    },
  );

  test.each([
    ['password:s3cret', 'password…'],
    ['maximum-pool-size 10\n more', 'maximum-pool-size…'],
    ['größe2:1', 'größe2…'],
  ])('shows only the beginning of the key %j, which is not a name', (key, shown) => {
    const { framework } = treeOf([group]);
    expect(faultsOf({ framework: { ...framework, [key]: 1 } })).toEqual({
      [`framework.${shown}`]: 'is not a known key',
    });
  });

  test('shows the beginning of a key if that is a known key, even if a password follows', () => {
    expect(faultsOf(treeWith({ ...primary, 'password:\ns3cret': 1 }))).toEqual({
      [`${atPrimary}.password…`]: 'is not a known key',
    });
  });

  test.each(['id', 'u', '', 'usernames2', 'hunter2', 'resu', 'p.a.s.s.w.o.r.d'])(
    'does not show the key %j, which may be a password',
    (key) => {
      const faults = faultsOf(treeWith({ ...primary, [key]: 1 }));
      expect(Object.keys(faults)).toEqual([atPrimary]);
      expect(faults[atPrimary]).toMatch(/^has an unknown key, hidden/);
    },
  );

  test('lists the known keys of a database when it does not show unknown ones', () => {
    const { [atPrimary]: fault, ...others } = faultsOf(treeWith({ ...primary, hunter2: 1, hunter3: 2 }));
    expect(others).toEqual({});
    expect(fault).toMatch(/2 unknown keys, .*jdbc-url, username, password, .*maximum-pool-size/);
    const mixed = Object.keys(faultsOf(treeWith({ ...primary, hunter2: 1, pasword: 2 })));
    expect(mixed.sort()).toEqual([atPrimary, `${atPrimary}.pasword`]);
  });

  test('is refused when a section contains itself', () => {
    const framework: Record<string, unknown> = { namespace: 'a' };
    framework['sharding'] = { groups: [framework] };
    expect(faultsOf({ framework })).toEqual({ 'framework.sharding.groups[0]': 'contains itself' });
  });

  test('says in its message what is wrong and where', () => {
    expect(() => parseFrameworkConfig(treeWith({}))).toThrow(`${atPrimary}.jdbc-url: is missing`);
  });

  test('is refused without the primary config', () => {
    const faults = faultsOf(
      treeOf([{ ...group, members: [{ ...member, configs: { 'lock-config': primary } }] }]),
    );
    expect(faults).toEqual({ [atPrimary]: 'is missing' });
  });

  test('is refused with one key in both kebab-case and camelCase', () => {
    expect(faultsOf(treeWith({ ...primary, jdbcUrl }))).toEqual({
      [`${atPrimary}.jdbc-url`]: expect.stringMatching(
        /twice here, in kebab-case and in camelCase/,
      ) as string,
    });
  });

  test('is refused with a group or a member that occurs twice', () => {
    const faults = faultsOf(treeOf([{ ...group, members: [member, member] }, group]));
    expect(faults).toEqual({
      'framework.sharding.groups[0].members[1].member': 'member 0 of group 0 occurs twice',
      'framework.sharding.groups[1].group': 'group 0 occurs twice',
      'framework.sharding.groups[1].members[0].member': 'member 0 of group 0 occurs twice',
    });
  });

  test('is refused with a default shard that is not among the groups', () => {
    const faults = faultsOf(treeOf([group], { group: 1, member: 0 }));
    expect(faults).toEqual({
      'framework.sharding.default-shard': `${ShardIdentifier.of(1, 0)} is not a member of any group`,
    });
  });

  test.each(['', '.', 'com.', '.com', 'com..wallet', 'com.1wallet', 'com wallet'])(
    'is refused with the namespace %j',
    (namespace) => {
      const faults = faultsOf({ framework: { ...treeOf([group]).framework, namespace } });
      expect(Object.keys(faults)).toEqual(['framework.namespace']);
    },
  );
});

describe('the section of group commit', () => {
  test('leaves group commit off by default, and when it is false', () => {
    expect(parseFrameworkConfig(treeOf([group])).groupCommit).toBe(false);
    expect(groupCommitOf(false)).toBe(false);
  });

  test('turns group commit on with the default settings when it is true or empty', () => {
    expect(groupCommitOf(true)).toEqual(defaultGroupSettings);
    expect(groupCommitOf({})).toEqual(defaultGroupSettings);
  });

  test('changes the settings that it names, in kebab-case and in camelCase, and no others', () => {
    expect(groupCommitOf({ 'plans-max': 16, queueMax: 1 })).toEqual({
      ...defaultGroupSettings,
      plansMax: 16,
      queueMax: 1,
    });
  });

  test('knows every setting that an executor has', () => {
    const changed = Object.fromEntries(Object.keys(defaultGroupSettings).map((name) => [name, 7]));
    expect(groupCommitOf(changed)).toEqual(changed);
  });

  test('is refused with the paths of all unknown names', () => {
    const disguised = JSON.parse('{"__proto__":{"plans-max":1},"constructor":1}') as object;
    expect(faultsOf(treeWithGroupCommit({ ...disguised, plans: 1, 'plans-min': 1 }))).toEqual({
      'framework.group-commit.__proto__': 'is not a known key',
      'framework.group-commit.constructor': 'is not a known key',
      'framework.group-commit.plans': 'is not a known key',
      'framework.group-commit.plans-min': 'is not a known key',
    });
  });

  test.each([0, -1, 1.5, Number.NaN, Infinity, 2 ** 53, '128', '', null, true, [1], {}])(
    'is refused with the value %j, which is not shown',
    (value) => {
      expect(faultsOf(treeWithGroupCommit({ 'plans-max': value, 'queue-max': value }))).toEqual({
        'framework.group-commit.plans-max': 'must be a whole number from 1',
        'framework.group-commit.queue-max': 'must be a whole number from 1',
      });
    },
  );

  test.each([0, 2 ** 31])('is refused with a wait in the queue of %d ms', (queueWaitMs) => {
    expect(faultsOf(treeWithGroupCommit({ queueWaitMs }))).toEqual({
      'framework.group-commit.queue-wait-ms': 'must be a whole number from 1 to 2147483647',
    });
  });

  test.each([null, 'true', 'yes', 0, 128, [true]])('is refused when it is %j', (section) => {
    expect(faultsOf(treeWithGroupCommit(section))).toEqual({
      'framework.group-commit': 'must be true, false or a section',
    });
  });

  test('is refused with one key in both kebab-case and camelCase', () => {
    const faults = faultsOf(treeWithGroupCommit({ 'plans-max': 1, plansMax: 2 }));
    expect(Object.keys(faults)).toEqual(['framework.group-commit.plans-max']);
  });
});

test('a configuration passes the section of relays on without validating it, with its keys in camelCase', () => {
  const { framework } = treeWithDelivery({}) as { readonly framework: object };
  const relay = [{ name: 'a', 'start-from': 'now' }];
  expect(parseFrameworkConfig({ framework: { ...framework, relay } }).relay).toEqual([
    { name: 'a', startFrom: 'now' },
  ]);
  expect(parseFrameworkConfig({ framework }).relay).toEqual([]);
  expect(() => parseFrameworkConfig({ framework: { ...framework, relay: { name: 'a' } } })).toThrow(
    'framework.relay: is not a list',
  );
});

test.each(['http', 'security'] as const)(
  'a configuration passes the section %s on without validating it, with its keys in camelCase',
  (name) => {
    const { framework } = treeWithDelivery({}) as { readonly framework: object };
    const section = { 'some-key': { 'other-key': 1 } };
    expect(parseFrameworkConfig({ framework: { ...framework, [name]: section } })[name]).toEqual({
      someKey: { otherKey: 1 },
    });
    expect(parseFrameworkConfig({ framework })[name]).toEqual({});
    expect(() => parseFrameworkConfig({ framework: { ...framework, [name]: [] } })).toThrow(
      `framework.${name}: is not a section`,
    );
  },
);

describe('a faulty section of delivery', () => {
  test.each([null, 'text', 5, [1]])('is refused when it is %j', (delivery) => {
    expect(faultsOf(treeWithDelivery(delivery))).toEqual({ 'framework.delivery': 'is not a section' });
  });

  test('is refused with one key in both kebab-case and camelCase', () => {
    const faults = faultsOf(treeWithDelivery({ 'lease-ms': 1, leaseMs: 2 }));
    expect(Object.keys(faults)).toEqual(['framework.delivery.lease-ms']);
  });
});

function migrateOf(migrate?: unknown): unknown {
  const { framework } = treeOf([group]) as { framework: object };
  return parseFrameworkConfig({ framework: { ...framework, ...(migrate !== undefined && { migrate }) } })
    .migrate;
}

describe('migrate', () => {
  test('is on-start by default', () => {
    expect(migrateOf()).toBe('on-start');
  });

  test.each(['on-start', 'check', 'off'])('may be %s', (mode) => {
    expect(migrateOf(mode)).toBe(mode);
  });

  test.each([true, 'on-open', ''])('may not be %j', (mode) => {
    expect(() => migrateOf(mode)).toThrow('framework.migrate: must be one of on-start, check, off');
  });
});
