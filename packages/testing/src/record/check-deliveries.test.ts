import type { RegisteredHandler } from '@framework/events';
import { expect, test } from 'vitest';

import { checkDeliveries } from './check-deliveries.js';
import type { DeliveryRecord } from './delivery-record.js';

const collector = {
  name: 'collector',
  eventClasses: undefined,
  options: { name: 'collector', startFrom: 'beginning' },
} as unknown as RegisteredHandler;
const events = [1, 2].map((modelVersion) => ({
  id: `event-${modelVersion}`,
  type: 'NoteWrittenEvent',
  modelName: 'Note',
  modelId: 'model-1',
  modelVersion,
  ordinal: 0,
}));

function recordOf(version: number, begun: number, done?: number): DeliveryRecord {
  return { handler: 'collector', eventId: `event-${version}`, begun, done, text: '' };
}

function faultsOf(records: readonly DeliveryRecord[], undone?: ReadonlyMap<string, number>) {
  const logs = [{ events, isBlocked: () => false }];
  return checkDeliveries({ records, logs, handlers: [collector], ...(undone && { undone }) });
}

const overtaken = 'was delivered before version 1 was handled';

test('an event may first appear in a batch behind an earlier event that failed alone', () => {
  expect(faultsOf([recordOf(1, 0), recordOf(1, 1, 2), recordOf(2, 1, 2)])).toEqual([]);
});

test("a batch with a model's events out of order is reported", () => {
  expect(faultsOf([recordOf(2, 0, 1), recordOf(1, 0, 1)])).toEqual([expect.stringContaining(overtaken)]);
});

test('an event delivered too early is reported, even if a later batch restores the order', () => {
  const records = [recordOf(2, 0), recordOf(1, 1, 2), recordOf(2, 1, 2)];
  expect(faultsOf(records)).toEqual([expect.stringContaining(overtaken)]);
});

test('an event must be handled again after a failover has lost the record of its handling', () => {
  const undone = new Map([['collector event-2', 4]]);
  const records = [recordOf(1, 0, 1), recordOf(2, 2, 3)];
  expect(faultsOf(records, undone)).toEqual([expect.stringContaining('was not handled again')]);
  expect(faultsOf([...records, recordOf(2, 5, 6)], undone)).toEqual([]);
});
