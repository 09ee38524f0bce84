import { expect, test } from 'vitest';

import { readServiceSettings as readSettings } from './service-settings.js';

const readServiceSettings = (environment: NodeJS.ProcessEnv): ReturnType<typeof readSettings> =>
  readSettings({ name: 'wallet' }, environment);

function isAccepted(environment: Readonly<Record<string, string>>): boolean {
  try {
    readServiceSettings({ WALLET_CONFIG: 'wallet.yaml', ...environment });
    return true;
  } catch {
    return false;
  }
}

test.each([
  ['PORT', 0, 65_535],
  ['CONNECTIONS_MAX', 1, 1_000_000],
  ['SHUTDOWN_TIMEOUT_MS', 1, 600_000],
])('%s may be %d to %d, and nothing beside', (name, min, max) => {
  const values = [min - 1, min, max, max + 1].map(String);
  expect(values.map((value) => isAccepted({ [name]: value }))).toEqual([false, true, true, false]);
  const others = ['1.0', '1e1', '+1', ' 1', '1 ', '0x1', '１', '1_0', 'NaN', '100000000'];
  expect(others.filter((value) => isAccepted({ [name]: value }))).toEqual([]);
});

test.each([
  ['WALLET_ROLE', ['all', 'http', 'worker', 'relay']],
  ['LOG_LEVEL', ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']],
  ['WALLET_DOCS', ['on', 'off']],
])('%s may be one of %j, in lower case', (name, accepted) => {
  const others = ['none', 'true', 'false', 'verbose', 'All', 'HTTP', 'INFO', 'On', 'all '];
  expect([...accepted, ...others].filter((value) => isAccepted({ [name]: value }))).toEqual(accepted);
});

test.each([
  ['WALLET_ROLE', 'role', 'all'],
  ['PORT', 'port', 8_080],
  ['HOST', 'host', '127.0.0.1'],
  ['WALLET_DOCS', 'docs', true],
  ['SHUTDOWN_TIMEOUT_MS', 'shutdownTimeoutMs', 10_000],
  ['CONNECTIONS_MAX', 'connectionsMax', undefined],
] as const)('%s that is empty or missing means the default of %s: %s', (name, setting, expected) => {
  expect(readServiceSettings({})[setting]).toBe(expected);
  expect(readServiceSettings({ [name]: '' })[setting]).toBe(expected);
});

test.each([
  ['production', true],
  ['Production', false],
  ['development', false],
  ['', false],
])('a process with NODE_ENV=%s is in operation: %s', (environment, expected) => {
  expect(readServiceSettings({ NODE_ENV: environment }).isProduction).toBe(expected);
});
