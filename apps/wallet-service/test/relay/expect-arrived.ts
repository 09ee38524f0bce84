import { DeliveryOperator } from '@framework/events';
import { expect, vi } from 'vitest';

import { rowsOf } from '../database-session.js';
import type { Fleet } from '../delivery/fleet.js';
import type { Arrivals } from '../../../../packages/relay/test/faults/arrivals.js';

/** How many events make a test of relays a full one, with which figures are measured; the default form takes seconds. */
const fullEventCount = 50_000;

/** How many events a test relays: `RELAY_EVENTS`, otherwise a number that needs seconds. */
export function eventCountOf(defaultCount: number): { readonly eventCount: number; readonly full: boolean } {
  const eventCount = Number(process.env['RELAY_EVENTS'] ?? defaultCount);
  return { eventCount, full: eventCount >= fullEventCount };
}

/**
 * Waits until every committed event has arrived, and checks that none of them was changed, invented, or arrived before an earlier
 * one of its model.
 */
export async function expectArrived(fleet: Fleet, arrivals: Arrivals, timeoutMs: number): Promise<void> {
  const committed = await committedEvents(fleet);
  try {
    await vi.waitFor(() => expect(arrivals.count).toBeGreaterThanOrEqual(committed.length), {
      timeout: timeoutMs,
      interval: 50,
    });
  } catch (error) {
    throw new Error(`Not every event has arrived. The relays: ${await stateOf(fleet)}`, { cause: error });
  }
  expect([...arrivals.ids].toSorted()).toEqual(committed.map(({ id }) => id).toSorted());
  expect(arrivals.changed).toEqual([]);
  const versions = Map.groupBy(committed, ({ modelId }) => modelId);
  expect(arrivals.versions.size).toBe(versions.size);
  for (const [modelId, events] of versions)
    expect(arrivals.versions.get(modelId)).toEqual(events.map(({ version }) => version));
}

/** The events of both databases, those of each model in the order of their versions. */
async function committedEvents({ databases: { global, mexico } }: Fleet) {
  const text = `select id, model_id, model_version from eventlog.events
                where event_type is not null order by model_id, model_version`;
  const rows = await Promise.all([rowsOf(global, text), rowsOf(mexico, text)]);
  return rows.flat().map((row) => ({
    id: String(row['id']),
    modelId: String(row['model_id']),
    version: Number(row['model_version']),
  }));
}

/** What operators would see, for the message of a failed test. */
async function stateOf({ service }: Fleet): Promise<string> {
  const operator = new DeliveryOperator(service.databases);
  const [lag, blocked] = [await operator.lag(), await operator.findBlocked({}, { limit: 5 })];
  return JSON.stringify({ lag: lag.items, blocked }, (_key, value: unknown) =>
    typeof value === 'bigint' ? String(value) : value,
  );
}
