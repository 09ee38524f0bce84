import { ConfigurationError } from '@framework/core';
import { describe, expect, test } from 'vitest';

import {
  type DeliveryOverrides,
  defaultDeliverySettings,
  engineSettings,
  eventBytesMax,
} from '../src/delivery-settings.js';
import { tuned } from '../src/delivery-tuning.js';

describe('the tuning of delivery', () => {
  test('follows from the settings, or is fixed', () => {
    expect(engineSettings({ pollMaxMs: 2_000, cursorSaveMs: 50, readBytesMax: 1_001 })).toMatchObject({
      pollMinMs: 500,
      blockedPollMs: 4_000,
      cursorSaveMinMs: 5,
      cursorSaveMaxMs: 500,
      cursorRestSaveMs: 1_500,
      batchBytesMax: 501,
      readMax: 1_000,
      unfinishedMax: 2_000,
    });
  });

  test('has times of at least a millisecond', () => {
    expect(engineSettings({ pollMaxMs: 1, cursorSaveMs: 1 })).toMatchObject({
      pollMinMs: 1,
      cursorSaveMinMs: 1,
    });
  });

  test('can be changed by tests, even in settings that already contain such a change', () => {
    const overrides = tuned({ leaseMs: 300, readMax: 7 });
    expect(Object.keys(overrides)).toEqual(['leaseMs']);
    expect(engineSettings(tuned({ ...overrides, readMax: 8, dueMax: 9 }))).toMatchObject({
      leaseMs: 300,
      readMax: 7,
      dueMax: 9,
    });
  });
});

/** The paths of everything that is wrong with the settings. */
function faultsOf(settings: unknown): readonly string[] {
  try {
    engineSettings(settings as DeliveryOverrides);
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return error.faults.map(({ path }) => path).toSorted();
  }
  return [];
}

describe('the settings of a delivery', () => {
  test('are the defaults where nothing is passed, or undefined', () => {
    expect(engineSettings()).toMatchObject(defaultDeliverySettings);
    const unset = { leaseMs: undefined, retry: { attemptsMax: undefined } } as unknown as DeliveryOverrides;
    expect(engineSettings(unset)).toEqual(engineSettings());
  });

  test('can be changed one by one', () => {
    expect(engineSettings({ leaseMs: 100, retry: { backoffMaxMs: 7 } })).toEqual({
      ...engineSettings(),
      leaseMs: 100,
      retry: { ...defaultDeliverySettings.retry, backoffMaxMs: 7 },
    });
  });

  test('are refused with all their errors at once', () => {
    const wrong = { leaseMs: 99, pollMs: 1, retry: { attemptsMax: 0, readMax: 1 } };
    expect(faultsOf(wrong)).toEqual([
      'delivery.leaseMs',
      'delivery.pollMs',
      'delivery.retry.attemptsMax',
      'delivery.retry.readMax',
    ]);
  });

  test.each([null, 5, 'fast', [5]])('are refused when they are not an object, such as %j', (value) => {
    expect(faultsOf(value)).toEqual(['delivery']);
    expect(faultsOf({ leaseMs: 99, retry: value })).toEqual(['delivery.leaseMs', 'delivery.retry']);
  });
});

test('an event is read completely if it is no larger than its share of the bytes that a read may return', () => {
  expect(eventBytesMax(engineSettings())).toBe(16_777);
  expect(eventBytesMax(engineSettings(tuned({ readMax: 3, readBytesMax: 11 })))).toBe(3);
  expect(eventBytesMax(engineSettings(tuned({ readMax: 1_000, readBytesMax: 10 })))).toBe(1);
});
