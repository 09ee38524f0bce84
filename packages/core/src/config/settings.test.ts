import { describe, expect, test } from 'vitest';

import { ResultAction, executorOf, openWallet } from '../../test/test-executor.js';
import type { ExecutorOptions } from '../action/action-executor.js';
import type { ExecutionConfiguration } from '../action/execution-configuration.js';
import { parseFrameworkConfig } from './framework-config.js';

const settings: readonly (readonly [section: keyof ExecutorOptions, setting: string])[] = [
  ['retry', 'attemptsMax'],
  ['retry', 'backoffBaseMs'],
  ['retry', 'backoffMaxMs'],
  ['limits', 'changesMax'],
  ['limits', 'eventsMax'],
  ['limits', 'payloadCharactersMax'],
  ['idempotency', 'keyLifetimeMs'],
  ['idempotency', 'searchWaitMs'],
  ['idempotency', 'commitsPerSweep'],
  ['idempotency', 'sweepRowsMax'],
  ['groupCommit', 'plansMax'],
  ['groupCommit', 'queueMax'],
  ['groupCommit', 'queueWaitMs'],
  ['groupCommit', 'planSizeMax'],
  ['groupCommit', 'planCharactersMax'],
  ['modelLocks', 'waitMs'],
];

function faultsOf(options: unknown): unknown {
  try {
    executorOf(async () => null, options as Partial<ExecutorOptions>);
    return [];
  } catch (error) {
    return (error as { readonly faults?: unknown }).faults ?? error;
  }
}

describe('the setting', () => {
  test.each(settings)('%s.%s is refused with its path and value when it is out of range', (...path) => {
    const [section, setting] = path;
    for (const [value, shown] of [
      [Number.NaN, 'NaN'],
      [-1, '-1'],
      [1.5, '1.5'],
      [Number.POSITIVE_INFINITY, 'Infinity'],
      ['5', 'a string'],
      [5n, 'a bigint'],
      [{}, 'an object'],
    ] as const) {
      expect(faultsOf({ [section]: { [setting]: value } })).toMatchObject([
        { path: `${section}.${setting}`, message: expect.stringContaining(`is ${shown}`) as string },
      ]);
    }
    expect(faultsOf({ [section]: { [setting]: 1 } })).toEqual([]);
  });

  test.each(settings.filter(([, setting]) => !setting.startsWith('backoff')))(
    '%s.%s is refused when it is 0',
    (section, setting) => {
      expect(faultsOf({ [section]: { [setting]: 0 } })).toMatchObject([{ path: `${section}.${setting}` }]);
    },
  );

  test.each(settings.filter(([, setting]) => setting.endsWith('Ms') && setting !== 'keyLifetimeMs'))(
    '%s.%s is refused beyond the longest time that a timer can wait',
    (section, setting) => {
      expect(faultsOf({ [section]: { [setting]: 2 ** 31 } })).toMatchObject([
        { path: `${section}.${setting}` },
      ]);
    },
  );

  test.each([
    ['retry', 'attemptsMax', 1, 10_000],
    ['retry', 'backoffBaseMs', 0, 2 ** 31 - 1],
    ['retry', 'backoffMaxMs', 0, 2 ** 31 - 1],
    ['idempotency', 'searchWaitMs', 1, 2 ** 31 - 1],
    ['groupCommit', 'queueWaitMs', 1, 2 ** 31 - 1],
    ['modelLocks', 'waitMs', 1, 2 ** 31 - 1],
    ...settings
      .filter(([, setting]) => !/Ms$|^attemptsMax$/.test(setting))
      .map(([section, setting]) => [section, setting, 1, Number.MAX_SAFE_INTEGER] as const),
  ] as const)('%s.%s may be %d to %d, and nothing beside', (section, setting, min, max) => {
    const refused = [min - 1, min, max, max + 1].map(
      (value) => (faultsOf({ [section]: { [setting]: value } }) as readonly unknown[]).length > 0,
    );
    expect(refused).toEqual([true, false, false, true]);
  });

  test('idempotency.keyLifetimeMs is refused beyond a century', () => {
    const centuryMs = 36_500 * 86_400_000;
    expect(faultsOf({ idempotency: { keyLifetimeMs: centuryMs } })).toEqual([]);
    expect(faultsOf({ idempotency: { keyLifetimeMs: centuryMs + 1 } })).toHaveLength(1);
  });

  test('with an unknown name is refused, as is one that must be a function and is not', () => {
    expect(faultsOf({ retry: { attemptMax: 3, isRetryable: true } })).toEqual([
      { path: 'retry.attemptMax', message: 'is not a known setting' },
      { path: 'retry.isRetryable', message: 'is not a function' },
    ]);
  });

  test('retry.attemptsMax is refused for one execution before anything is performed', async () => {
    let performed = 0;
    const { execute } = executorOf(async () => performed++);
    await expect(execute(null, { retry: { attemptsMax: Number.NaN } })).rejects.toMatchObject({
      code: 'invalid-configuration',
      faults: [{ path: 'retry.attemptsMax' }],
    });
    expect(performed).toBe(0);
  });
});

test('an unknown option of the executor is refused with the known names', () => {
  const misspelled = { groupComit: true, clok: undefined } as object;
  expect(faultsOf(misspelled)).toMatchObject([
    { path: 'groupComit', message: expect.stringMatching(/is not a known option.* groupCommit,/) as string },
    { path: 'clok' },
  ]);
});

test('an unknown option of an execution is refused before anything is performed', async () => {
  let performed = 0;
  const { execute } = executorOf(async () => performed++);
  const misspelled = { headers: {}, idempotncyKey: 'key-1' } as object;
  await expect(execute(null, misspelled)).rejects.toMatchObject({
    code: 'invalid-configuration',
    faults: [{ path: 'idempotncyKey' }],
  });
  expect(performed).toBe(0);
});

class WithGetters {
  get idempotencyKey(): string {
    return 'key-1';
  }

  get retry(): object {
    return Object.create({ attemptsMax: Number.NaN }) as object;
  }
}

test.each<[how: string, configuration: ExecutionConfiguration]>([
  ['inherited', Object.create({ idempotencyKey: 'key-1' }) as ExecutionConfiguration],
  ['the getter of a class', Object.defineProperty(new WithGetters(), 'retry', { value: undefined })],
])('an option of one execution takes effect even if it is %s', async (_how, configuration) => {
  const { execute, driver } = executorOf(async (plan) => plan().add(openWallet()).version, {}, ResultAction);
  expect(await execute(null, configuration)).toBe(1);
  expect(await execute(null, configuration)).toBe(1);
  expect(driver.committed).toMatchObject([{ key: { key: 'key-1' } }]);
});

test('a setting is checked even if it is inherited', async () => {
  const { execute } = executorOf(async () => null, {}, ResultAction);
  await expect(execute(null, new WithGetters())).rejects.toMatchObject({
    faults: [{ path: 'retry.attemptsMax' }],
  });
});

test('an unknown option is named even when it is inherited', async () => {
  const { execute } = executorOf(async () => null);
  await expect(execute(null, Object.create({ idempotncyKey: 'key-1' }) as object)).rejects.toMatchObject({
    faults: [{ path: 'idempotncyKey' }],
  });
});

test.each(['toString', 'constructor', '__proto__'])(
  'a setting named %s, like a property that every object has, is not known',
  (name) => {
    const section = JSON.parse(`{"${name}": 5}`) as object;
    expect(faultsOf({ limits: section })).toEqual([
      { path: `limits.${name}`, message: 'is not a known setting' },
    ]);
  },
);

test.each([null, 5, 'on', [1]])(
  '%j in place of settings or options is refused with their path',
  async (value) => {
    for (const path of ['retry', 'limits', 'groupCommit', 'modelLocks'])
      expect(faultsOf({ [path]: value })).toEqual([{ path, message: 'is not an object' }]);
    const { execute } = executorOf(async () => null);
    await expect(execute(null, value as object)).rejects.toMatchObject({ faults: [{ path: 'options' }] });
  },
);

test.each([undefined, 5, null])('the namespace %j is refused', (namespace) => {
  expect(faultsOf({ namespace })).toEqual([{ path: 'namespace', message: 'is not a string' }]);
});

test.each(['', 'a b', 'a..b', '-a', '1a', 'a.', 'a\n', 'a#handlers', 'x'.repeat(256)])(
  'the namespace %j is refused by the executor as by the configuration',
  (namespace) => {
    const refusal = [
      { path: 'namespace', message: expect.stringMatching(/letters, digits, _ and -, beginning/) as string },
    ];
    expect(faultsOf({ namespace })).toMatchObject(refusal);
    const sharding = {
      'default-shard': { group: 0, member: 0 },
      groups: [
        {
          group: 0,
          name: 'global',
          members: [
            {
              member: 0,
              name: 'one',
              configs: { 'primary-config': { 'jdbc-url': 'jdbc:postgresql://db-1/global' } },
            },
          ],
        },
      ],
    };
    const parse = (): unknown => parseFrameworkConfig({ framework: { namespace, sharding } });
    expect(parse).toThrow(
      expect.objectContaining({
        faults: [expect.objectContaining({ path: 'framework.namespace' })],
      }) as Error,
    );
  },
);

test('a namespace may have hyphens and underscores', () => {
  expect(faultsOf({ namespace: 'com.my-company._wallet2' })).toEqual([]);
});

test('a namespace may be as long as an index can hold', () => {
  expect(faultsOf({ namespace: 'x'.repeat(255) })).toEqual([]);
});

test('an error shows only the beginning of a long malformed namespace', () => {
  expect(faultsOf({ namespace: '1'.repeat(100) })).toMatchObject([
    { message: expect.stringMatching(/'1{64}'/) as string },
  ]);
});
