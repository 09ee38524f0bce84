import { ConfigurationError } from '@framework/core';
import { describe, expect, test } from 'vitest';

import {
  type DeliveryOverrides,
  defaultDeliverySettings,
  deliverySettings,
  eventBytesMax,
} from '../src/delivery-settings.js';

describe('the settings of a delivery', () => {
  test('are the defaults where nothing is said, also where undefined is', () => {
    expect(deliverySettings()).toEqual(defaultDeliverySettings);
    const unset = { leaseMs: undefined, retry: { attemptsMax: undefined } } as unknown as DeliveryOverrides;
    expect(deliverySettings(unset)).toEqual(defaultDeliverySettings);
  });

  test('change one by one', () => {
    expect(deliverySettings({ leaseMs: 100, retry: { backoffMaxMs: 7 } })).toEqual({
      ...defaultDeliverySettings,
      leaseMs: 100,
      retry: { ...defaultDeliverySettings.retry, backoffMaxMs: 7 },
    });
  });

  test('are refused with all that is wrong with them at once', () => {
    const wrong = { leaseMs: 99, pollMs: 1, retry: { attemptsMax: 0, readMax: 1_000_001 } };
    let faults: readonly string[] = [];
    try {
      deliverySettings(wrong);
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      faults = error.faults.map(({ path }) => path);
    }
    expect(faults.toSorted()).toEqual([
      'delivery.attemptsMax',
      'delivery.leaseMs',
      'delivery.pollMs',
      'delivery.readMax',
    ]);
  });
});

test('an event is read with others when it has no more than its share of the bytes, and always when it has one', () => {
  expect(eventBytesMax(deliverySettings())).toBe(16_777);
  expect(eventBytesMax(deliverySettings({ readMax: 3, readBytesMax: 11 }))).toBe(3);
  expect(eventBytesMax(deliverySettings({ readMax: 1_000, readBytesMax: 10 }))).toBe(1);
});
