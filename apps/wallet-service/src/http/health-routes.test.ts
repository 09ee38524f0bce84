import { ShardIdentifier } from '@framework/core';
import { DatabaseNotReadyError, type ShardStatus } from '@framework/core/adapter';
import { OpenAPIHono } from '@hono/zod-openapi';
import { expect, test } from 'vitest';

import { healthRoutes } from './health-routes.js';
import type { WalletEnv } from './wallet-app-env.js';

const shard = ShardIdentifier.of(1, 0);
const healthy: ShardStatus = { shard, name: 'mexico-1', place: 'db/mexico', ready: true, reason: undefined };
const mexico = { group: 1, member: 0, name: 'mexico-1' };

function readinessOf(
  started: Promise<void>,
  status: ShardStatus = healthy,
): () => Promise<{ status: number; body: unknown }> {
  const app = new OpenAPIHono<WalletEnv>();
  const delivery = { startedOn: () => started, restartNeed: undefined };
  healthRoutes(app, { databases: { shards: [shard], status: async () => [status] }, delivery });
  return async () => {
    const response = await app.request('/health/ready');
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
