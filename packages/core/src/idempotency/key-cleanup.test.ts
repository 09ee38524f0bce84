import { expect, test } from 'vitest';

import { leftBehind, unhandledIn } from '../../test/left-behind.js';
import { global, mexico } from '../../test/test-executor.js';
import { defaultIdempotencySettings } from '../config/settings.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import type { DatabaseRegistry } from '../storage/database-registry.js';
import { sourceOf } from '../storage/idempotency-keys.js';
import { ShardUnavailableError } from '../storage/storage-errors.js';
import { KeySweep } from './key-cleanup.js';

async function down(): Promise<never> {
  throw new ShardUnavailableError(mexico, 'it is down');
}

const elsewhere = ShardIdentifier.of(9, 9);

/**
 * A cleanup of one shard's keys, and the answers of its databases about the keys' events. A key is named after its event, if it
 * has one.
 */
function sweepOf(
  keys: readonly (readonly [eventId: string, shard: ShardIdentifier | undefined])[],
  mayComeAgain: (eventIds: readonly string[]) => Promise<readonly string[]>,
): {
  readonly sweep: KeySweep;
  readonly left: Set<string>;
  readonly places: unknown[];
  readonly failures: Error[];
} {
  const left = new Set(keys.map(([eventId]) => eventId));
  const places: unknown[] = [];
  /** Errors for the next searches for keys. */
  const failures: Error[] = [];
  const blocked = {
    mayComeAgain: async (events: readonly { readonly eventId: string }[]) => {
      const again = await mayComeAgain(events.map(({ eventId }) => eventId));
      return events.filter(({ eventId }) => again.includes(eventId));
    },
  };
  // One store for all shards of a database, so that the database is asked only once.
  const store = { blocked };
  const manager = {
    keys: {
      deleteExpired: down,
      findHandlerKeys: async ({
        limit,
        after = '0',
      }: {
        readonly limit: number;
        readonly after?: string;
      }) => {
        const failure = failures.shift();
        places.push(after);
        if (failure !== undefined) throw failure;
        const found = keys.map(([eventId, shard], index) => ({
          key: eventId,
          principal: 'p',
          namespace: 'n#handlers',
          source: shard === undefined ? eventId : sourceOf({ handler: 'a handler', eventId, shard }),
          index,
        }));
        const behind = found.filter(({ key, index }) => left.has(key) && index >= Number(after));
        const items = behind.slice(0, limit);
        return { items, next: behind.length > limit ? `${Number(items.at(-1)?.index) + 1}` : undefined };
      },
      delete: async (scopes: readonly { readonly key: string }[]) => {
        if (scopes.length === 0) throw new Error('There is nothing to be deleted');
        return scopes.filter(({ key }) => left.delete(key)).length;
      },
    },
  };
  const databases = {
    transactionManager: () => manager,
    deliveries: () => [{ shards: [global, mexico], store }],
  } as unknown as DatabaseRegistry;
  const sweep = new KeySweep(databases, { ...defaultIdempotencySettings, sweepRowsMax: 2 });
  return { sweep, left, places, failures };
}

test("a handler's key is deleted only after its event's database has ruled out another delivery", async () => {
  const { sweep, left } = sweepOf(
    [
      ['dead', global],
      ['done', mexico],
    ],
    async () => ['dead'],
  );
  expect(await sweep.sweepHandlerKeys(global)).toBe(1);
  expect([...left]).toEqual(['dead']);
});

test('a key of a handler stays while the database of its event does not answer, or is not configured here', async () => {
  for (const { sweep, left } of [
    sweepOf([['done', mexico]], down),
    sweepOf([['done', elsewhere]], async () => []),
  ]) {
    expect(await sweep.sweepHandlerKeys(global)).toBe(0);
    expect([...left]).toEqual(['done']);
  }
});

test('a key whose text does not name an event stays', async () => {
  const { sweep, left } = sweepOf(
    [
      ['of another version', undefined],
      ['done', global],
    ],
    async () => [],
  );
  expect(await sweep.sweepHandlerKeys(global)).toBe(1);
  expect([...left]).toEqual(['of another version']);
});

test('keys of handlers that stay do not prevent later ones from being deleted', async () => {
  const dead = Array.from({ length: 5 }, (_item, index) => `dead-${index}`);
  const { sweep, left, places } = sweepOf(
    [...dead, 'done'].map((eventId) => [eventId, global]),
    async () => dead,
  );
  for (let round = 0; round < 4; round++) await sweep.sweepHandlerKeys(global);
  expect([...left]).toEqual(dead);
  expect(places).toEqual(['0', '2', '4', '0']);
});

test('keys of handlers are swept after a number of commits, even if expired keys of clients cannot be deleted', async () => {
  const { sweep, left, places } = sweepOf(
    [
      ['dead', global],
      ['done', mexico],
    ],
    async () => ['dead'],
  );
  const { commitsPerSweep } = defaultIdempotencySettings;
  for (let count = 1; count < commitsPerSweep; count++) sweep.countCommit(global);
  expect(places).toEqual([]);
  sweep.countCommit(global);
  await expect.poll(() => [...left]).toEqual(['dead']);
});

test('a sweep that fails between two pages continues where it was, and ends no process', async () => {
  const dead = Array.from({ length: 4 }, (_item, index) => `dead-${index}`);
  const { sweep, left, places, failures } = sweepOf(
    [...dead, 'done'].map((eventId) => [eventId, global]),
    async () => dead,
  );
  await sweep.sweepHandlerKeys(global);
  failures.push(new ShardUnavailableError(global, 'it is down'));
  const { commitsPerSweep } = defaultIdempotencySettings;
  const unhandled = await unhandledIn(() => {
    for (let count = 0; count < commitsPerSweep; count++) sweep.countCommit(global);
  });
  expect([unhandled, places]).toEqual([[], ['0', '2']]);
  for (let round = 0; round < 2; round++) await sweep.sweepHandlerKeys(global);
  expect([[...left], places]).toEqual([dead, ['0', '2', '2', '4']]);
});

test('keys of each shard are swept once for each full number of commits there', async () => {
  const { sweep, places } = sweepOf([], async () => []);
  const { commitsPerSweep } = defaultIdempotencySettings;
  for (let count = 1; count < 2 * commitsPerSweep; count++) sweep.countCommit(global);
  for (let count = 1; count < commitsPerSweep; count++) sweep.countCommit(mexico);
  expect(places).toHaveLength(1);
  sweep.countCommit(global);
  expect(places).toHaveLength(2);
  sweep.countCommit(mexico);
  expect(places).toHaveLength(3);
});

test('the counts and places of sweeps do not grow with the number of commits and pages', async () => {
  const { sweep } = sweepOf(
    Array.from({ length: 5 }, (_item, index) => [`dead-${index}`, global]),
    async (ids) => ids,
  );
  const left = await leftBehind(async () => {
    for (let page = 0; page < 3; page++) await sweep.sweepHandlerKeys(global);
    sweep.countCommit(mexico);
  });
  expect(left.filter((line) => line.includes('/core/src/'))).toEqual([]);
});
