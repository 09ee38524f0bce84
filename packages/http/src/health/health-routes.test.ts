import { ShardIdentifier } from '@framework/core';
import { DatabaseNotReadyError, type ShardStatus } from '@framework/core/adapter';
import { expect, test, vi } from 'vitest';

import { clientOf, testApi } from '../../test/test-api.js';
import { type DeliveryHealth, healthRoutes } from './health-routes.js';
import { shardCauses } from './shard-causes.js';

const shard = ShardIdentifier.of(1, 0);
const healthy: ShardStatus = { shard, name: 'mexico-1', place: 'db/mexico', ready: true, reason: undefined };
const mexico = { group: 1, member: 0, name: 'mexico-1' };

function serviceOn(
  databases: Parameters<typeof healthRoutes>[0]['databases'],
  delivery: DeliveryHealth = { startedOn: async () => undefined, restartNeed: undefined },
): ReturnType<typeof clientOf> {
  return clientOf(testApi({ routes: healthRoutes({ databases, delivery }) }));
}

function readinessOf(
  started: Promise<void>,
  status: ShardStatus = healthy,
): () => Promise<{ status: number; body: unknown }> {
  const delivery = { startedOn: () => started, restartNeed: undefined };
  const send = serviceOn({ shards: [shard], status: async () => [status] }, delivery);
  return async () => {
    const response = await send('/health/ready');
    return { status: response.status, body: await response.json() };
  };
}

test('a process is ready once its handlers have their places in the logs', async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const readiness = readinessOf(promise);
  const waiting = { ...mexico, status: 'unavailable', cause: 'delivery-starting' };
  expect(await readiness()).toMatchObject({
    status: 503,
    body: { status: 'unavailable', shards: [waiting] },
  });
  resolve();
  expect(await readiness()).toEqual({
    status: 200,
    body: { status: 'ready', shards: [{ ...mexico, status: 'ready' }] },
  });
});

test('a process whose delivery is refused by a database is never ready', async () => {
  const readiness = readinessOf(Promise.reject(new Error('two handlers of one name')));
  await Promise.resolve();
  expect(await readiness()).toMatchObject({ status: 503 });
});

test('a shard that cannot serve reports the reason and the remedy, without internals', async () => {
  const what = 'password authentication failed for user "wallet"';
  const reason = new DatabaseNotReadyError('access-refused', { what, remedy: 'at db', cause: undefined });
  const readiness = readinessOf(Promise.resolve(), { ...healthy, ready: false, reason });
  const detail =
    'its database refuses the login of the service: correct username and password, or the privileges of that user';
  expect(await readiness()).toEqual({
    status: 503,
    body: {
      status: 'unavailable',
      shards: [{ ...mexico, status: 'unavailable', cause: 'access-refused', detail }],
    },
  });
});

test('callers at the same time share one check of the databases, and later ones begin another', async () => {
  const checks = [1, 2, 3].map(() => Promise.withResolvers<readonly ShardStatus[]>());
  let checkCount = 0;
  const status = (): Promise<readonly ShardStatus[]> => checks[checkCount++]!.promise;
  const send = serviceOn({ shards: [shard], status });
  const ask = async (): Promise<number> => (await send('/health/ready')).status;
  const first = [ask(), ask(), ask()];
  await vi.waitFor(() => expect(checkCount).toBe(1));
  checks[0]?.resolve([healthy]);
  expect(await Promise.all(first)).toEqual([200, 200, 200]);
  const failing = ask();
  checks[1]?.reject(new Error('down'));
  expect(await failing).toBe(500);
  const last = ask();
  checks[2]?.resolve([healthy]);
  expect([await last, checkCount]).toEqual([200, 3]);
});

test('a process is ready only when each of its shards is, in whichever order they are listed', async () => {
  const other = ShardIdentifier.of(0, 0);
  const isDown = { ...healthy, shard: other, ready: false };
  for (const statuses of [
    [healthy, isDown],
    [isDown, healthy],
  ]) {
    const send = serviceOn({ shards: [shard, other], status: async () => statuses });
    expect((await send('/health/ready')).status).toBe(503);
  }
});

test('no remedy names a program that only one application has', () => {
  expect(Object.values(shardCauses).filter(({ remedy }) => /\bnpm\b/.test(remedy))).toEqual([]);
});
