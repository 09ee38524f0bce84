import { parseFrameworkConfig } from '@framework/core';
import { expect, test } from 'vitest';

import { parseSection } from '../parse-section.js';
import { type HttpSettings, httpSchema } from './http-settings.js';

test.each([
  ['limits.body-bytes-max', 10, 'must be a whole number from 1024 to 16777216'],
  ['limits.connections-max', '50', 'must be a whole number from 1 to 1000000'],
  ['limits.per-address', true, 'must be false, or a section with requests and seconds'],
  ['limits.shared-by', { redis: 'redis://x', postgresql: 'postgres://x' }, 'either redis or postgresql'],
  ['limits.shared-by.redis', { redis: 'https://x' }, 'must be a URL, redis://… or rediss://'],
  ['limits.shared-by.postgresql', { postgresql: 'secret' }, 'must be a URL, postgresql://'],
  ['limits.headers-timeout-ms', 30_001, 'must not be longer than request-timeout-ms'],
  ['limits.unlimited-addresses[0]', ['10.0.0.0/64'], 'must be an address, or a range'],
  ['trusted-proxies[1]', ['10.0.0.1', 'proxy'], 'must be an address, or a range'],
  ['limits.colour', 'red', 'is not a known key'],
  ['cors', { origins: ['*'], credentials: true }, 'must not have credentials for every origin'],
  ['cors.origins[0]', ['https://app.example/path'], 'must be . or an origin'],
  ['cors.origins[0]', ['app.example'], 'must be . or an origin'],
  ['cors.origins', [], 'is empty: name an origin'],
  ['cors.origin', ['https://app.example'], 'is not a known key'],
])('the value of %s may not be %j', (path, value, message) => {
  const [section = '', key] = path.replace(/\[\d\]$/, '').split('.');
  expect(() => sectionOf(key === undefined ? { [section]: value } : { [section]: { [key]: value } })).toThrow(
    new RegExp(`framework\\.http\\.${path.replaceAll('[', '\\[')}: .*${message}`),
  );
});

test.each(['redis://:secret@redis:6379', 'rediss://redis', 'jdbc:postgresql://db/limits', 'postgres://db'])(
  'processes may count together in %s',
  (url) => {
    const name = url.startsWith('redis') ? 'redis' : 'postgresql';
    expect(sectionOf({ limits: { 'shared-by': { [name]: url } } }).limits.sharedBy).toEqual({
      [name]: url.replace('jdbc:', ''),
    });
  },
);

function sectionOf(http: object): HttpSettings {
  const configs = { 'primary-config': { 'jdbc-url': 'postgres://127.0.0.1/global' } };
  const groups = [{ group: 0, name: 'global', members: [{ member: 0, name: 'global-1', configs }] }];
  const sharding = { 'default-shard': { group: 0, member: 0 }, groups };
  const config = parseFrameworkConfig({ framework: { namespace: 'x', sharding, http } });
  return parseSection('http', httpSchema, config.http);
}

/** Whether limits are accepted as they are. */
function isAccepted(limits: object): boolean {
  try {
    sectionOf({ limits });
    return true;
  } catch {
    return false;
  }
}

/** The range of each whole number below `framework.http.limits`. */
const ranges = [
  ['body-bytes-max', 1_024, 16_777_216],
  ['headers-bytes-max', 1_024, 1_048_576],
  ['headers-max', 16, 10_000],
  ['connections-max', 1, 1_000_000],
  ['connections-per-address-max', 1, 1_000_000],
  ['request-timeout-ms', 10_000, 2_147_483_647],
  ['idle-timeout-ms', 100, 2_147_483_647],
  ['answer-timeout-ms', 100, 2_147_483_647],
  ['requests-per-shard-max', 1, 1_000_000],
] as const;

test.each(ranges)('the limit %s may be %d to %d, and nothing beside', (key, min, max) => {
  expect([min - 1, min, max, max + 1].map((value) => isAccepted({ [key]: value }))).toEqual([
    false,
    true,
    true,
    false,
  ]);
});

test.each([
  [100, 100, true],
  [99, 30_000, false],
  [30_000, 30_000, true],
  [30_001, 30_000, false],
  [2_147_483_647, 2_147_483_647, true],
])('headers may take %d ms if the whole request may take %d ms: %s', (headers, request, expected) => {
  const limits = { 'headers-timeout-ms': headers, 'request-timeout-ms': request };
  expect(isAccepted(limits)).toBe(expected);
});

test.each([
  [{ requests: 1, seconds: 1 }, true],
  [{ requests: 1_000_000, seconds: 86_400 }, true],
  [{ requests: 0, seconds: 1 }, false],
  [{ requests: 1_000_001, seconds: 1 }, false],
  [{ requests: 1, seconds: 0 }, false],
  [{ requests: 1, seconds: 86_401 }, false],
])('each client may have the rate %j: %s', (rate, expected) => {
  for (const key of ['per-address', 'per-principal']) expect(isAccepted({ [key]: rate })).toBe(expected);
});
