import { ConfigurationError } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { parseDeliverySettings } from './delivery-settings.js';

/** The faults of a section by their paths, each with its message. */
function faultsOf(section: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> {
  try {
    parseDeliverySettings(section);
    return {};
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return Object.fromEntries(error.faults.map(({ path, message }) => [path, message]));
  }
}

describe('a delivery section', () => {
  test('changes what it names, and nothing else', () => {
    expect(parseDeliverySettings({})).toEqual({});
    expect(parseDeliverySettings({ leaseMs: 5_000, retry: { attemptsMax: 3 } })).toEqual({
      leaseMs: 5_000,
      retry: { attemptsMax: 3 },
    });
  });

  test('may say that events are kept for ever', () => {
    expect(parseDeliverySettings({ retentionMs: 0 })).toEqual({ retentionMs: 0 });
  });

  test('is refused with the paths of all unknown names', () => {
    const disguised = JSON.parse('{"__proto__":{"leaseMs":1},"constructor":1}') as Record<string, unknown>;
    expect(faultsOf({ ...disguised, lease: 1, attemptsMax: 3, retry: { retryMax: 3, leaseMs: 1 } })).toEqual({
      'framework.delivery.lease': 'is not a known key',
      'framework.delivery.__proto__': 'is not a known key',
      'framework.delivery.constructor': 'is not a known key',
      'framework.delivery.attempts-max': 'is not a known key',
      'framework.delivery.retry.retry-max': 'is not a known key',
      'framework.delivery.retry.lease-ms': 'is not a known key',
    });
  });

  test.each([0, -1, 1.5, Number.NaN, Infinity, 2 ** 53, '10000', '', null, true, [1], {}])(
    'is refused for the value %j, which is not shown',
    (value) => {
      expect(faultsOf({ pollMaxMs: value, retry: { backoffBaseMs: value } })).toEqual({
        'framework.delivery.poll-max-ms': 'must be a whole number from 1 to 2,147,483,647',
        'framework.delivery.retry.backoff-base-ms': 'must be a whole number from 1 to 2,147,483,647',
      });
    },
  );

  test('is refused for every invalid number, with its range', () => {
    const retry = { attemptsMax: 1_000_001, backoffMaxMs: 2 ** 31 };
    expect(
      faultsOf({
        leaseMs: 1,
        timeoutMs: 2 ** 31,
        batchMax: 2 ** 53 - 1,
        readBytesMax: 2 ** 31,
        retentionMs: 2 ** 53 - 1,
        retry,
      }),
    ).toEqual({
      'framework.delivery.lease-ms': 'must be a whole number from 100 to 2,147,483,647',
      'framework.delivery.timeout-ms': 'must be a whole number from 1 to 2,147,483,647',
      'framework.delivery.batch-max': 'must be a whole number from 1 to 1,000,000',
      'framework.delivery.read-bytes-max': 'must be a whole number from 1 to 1,073,741,824',
      'framework.delivery.retention-ms': 'must be a whole number from 0 to 3,155,760,000,000',
      'framework.delivery.retry.attempts-max': 'must be a whole number from 1 to 1,000,000',
      'framework.delivery.retry.backoff-max-ms': 'must be a whole number from 1 to 2,147,483,647',
    });
  });

  test.each([null, 5, 'none', [3]])('is refused when its retry is %j', (retry) => {
    expect(Object.keys(faultsOf({ retry }))).toEqual(['framework.delivery.retry']);
  });
});
