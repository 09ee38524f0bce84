import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import type { Arrivals } from './arrivals.js';
import type { OwnBroker } from './own-broker.js';
import { type RelayLife, RelayedLog, models } from './relayed-log.js';

const patience = { timeout: 60_000 };

/** Defines the tests of a relay whose process, or whose broker, goes away and comes back. */
export function describeRelayFaults(name: string, open: (() => Promise<OwnBroker>) | undefined): void {
  describe.skipIf(open === undefined)(`a relay to ${name}`, () => {
    let broker: OwnBroker;
    let onArrived: Arrivals['add'];
    beforeAll(async () => {
      if (open === undefined) return;
      broker = await open();
      await broker.start();
      await broker.prepare();
      broker.consume((message) => onArrived(message));
    });
    afterAll(() => broker.end());

    /** A log of a test's own, and what has arrived of it. */
    async function newLog(): Promise<RelayedLog> {
      const log = await RelayedLog.create(broker);
      const { arrivals } = log;
      onArrived = (message) => arrivals.add(message);
      return log;
    }

    test('that dies is succeeded by one that publishes every event in order, and the same bytes again', async () => {
      const log = await newLog();
      const first = await log.startRelay();
      await log.write(1);
      await isPublished(log);
      // The broker stores messages whose confirmations never reach the relay.
      first.deafen();
      await log.write(4);
      await expect.poll(() => log.arrivals.count, patience).toBeGreaterThan(models.length);
      await first.die();
      const second = await log.startRelay();
      await isPublished(log);
      await broker.stop('SIGTERM');
      await log.write(2);
      await isWaiting(second);
      await second.die();
      const third = await log.startRelay();
      await isWaiting(third);
      await broker.start();
      await log.write(1);
      await isPublished(log);
      await expectArrived(log);
      expect(log.arrivals.repeatCount > 0).toBe(!broker.dropsRepeats);
    });

    test('keeps what is committed while the broker is dead, counts no attempt, and publishes all of it afterwards', async () => {
      const log = await newLog();
      const relay = await log.startRelay();
      await log.write(1);
      await isPublished(log);
      relay.deafen();
      await log.write(1);
      await expect.poll(() => log.arrivals.count, patience).toBeGreaterThan(models.length);
      await broker.stop('SIGKILL');
      relay.hear();
      const arrivedCount = log.arrivals.count;
      await log.write(10);
      await isWaiting(relay);
      expect(log.arrivals.count).toBe(arrivedCount);
      expect(await log.lag()).toMatchObject({ blockedCount: 0, deadCount: 0 });
      expect((await log.lag())?.pendingCount).toBeGreaterThanOrEqual(10 * models.length);
      await broker.start();
      await isPublished(log);
      await expectArrived(log);
      expect(relay.publisher.state.kind).toBe('publishing');
      expect(await log.lag()).toMatchObject({ blockedCount: 0, deadCount: 0 });
      expect(relay.attempts).toContain('not counted');
      expect(relay.attempts).not.toContain('counted');
    });
  });
}

/** Resolves when every event is published, and the relay has saved that. */
async function isPublished(log: RelayedLog): Promise<void> {
  await expect.poll(async () => (await log.lag())?.pendingCount, patience).toBe(0);
}

/** Resolves when the relay has found the broker unavailable. */
async function isWaiting({ publisher }: RelayLife): Promise<void> {
  await expect
    .poll(() => publisher.state, patience)
    .toMatchObject({ kind: 'waiting', lastError: { code: 'broker-unavailable' } });
}

/** Checks that every event has arrived as it was committed, those of a model first in order, and nothing else. */
async function expectArrived(log: RelayedLog): Promise<void> {
  const { arrivals, version } = log;
  const ids = await log.ids();
  expect(ids).toHaveLength(models.length * version);
  await expect.poll(() => arrivals.ids.toSorted(), patience).toEqual(ids);
  expect(arrivals.changed).toEqual([]);
  const versions = Array.from({ length: version }, (_unused, index) => index + 1);
  expect(Object.fromEntries(arrivals.versions)).toEqual(
    Object.fromEntries(models.map((model) => [model, versions])),
  );
}
