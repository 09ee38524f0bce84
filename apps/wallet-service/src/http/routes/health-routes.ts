import type { DatabaseRegistry, ShardStatus } from '@framework/core';
import { z } from '@hono/zod-openapi';
import { serve } from '../operation/serve.js';
import type { WalletService } from '../wallet-service.js';
import type { WalletApp } from '../wallet-app-env.js';

const liveSchema = z.object({ status: z.literal('live') }).openapi('Liveness');

const statusSchema = z.enum(['ready', 'unavailable']);

const readySchema = z
  .object({
    status: statusSchema,
    shards: z.array(
      z.object({
        group: z.int(),
        member: z.int(),
        name: z.string().openapi({ example: 'mexico-1' }),
        status: statusSchema,
      }),
    ),
  })
  .openapi('Readiness');

/** Serves what orchestrators ask: whether the process lives, and whether every shard can serve. */
export function healthRoutes(
  app: WalletApp,
  { databases, delivery }: Pick<WalletService, 'databases' | 'delivery'>,
): void {
  serve(
    app,
    {
      method: 'get',
      path: '/health/live',
      tag: 'Health',
      summary: 'Tell whether the process lives',
      answers: { 200: 'It does' },
      answer: liveSchema,
      problems: [],
    },
    () => ({ body: { status: 'live' as const } }),
  );

  const statusOf = sharedStatus(databases);
  serve(
    app,
    {
      method: 'get',
      path: '/health/ready',
      tag: 'Health',
      summary: 'Tell which shards can serve',
      description: 'Requests that need only shards that are ready are served in either case.',
      answers: { 200: 'All shards can serve', 503: 'At least one cannot, or the process must be restarted' },
      answer: readySchema,
      problems: [],
    },
    async () => {
      const shards = await statusOf();
      const ready = shards.every((shard) => shard.ready) && delivery.restartNeed === undefined;
      return {
        status: ready ? 200 : 503,
        body: { status: statusWord(ready), shards: shards.map(shardReadiness) },
      };
    },
  );
}

/** Asks once for all who ask at the same time, because every question opens a connection to each database. */
function sharedStatus(databases: DatabaseRegistry): () => Promise<readonly ShardStatus[]> {
  let running: Promise<readonly ShardStatus[]> | undefined;
  return () => {
    running ??= databases.status().finally(() => (running = undefined));
    return running;
  };
}

function shardReadiness({ shard, name, ready }: ShardStatus): z.input<typeof readySchema>['shards'][number] {
  return { group: shard.group, member: shard.member, name, status: statusWord(ready) };
}

function statusWord(ready: boolean): z.input<typeof statusSchema> {
  return ready ? 'ready' : 'unavailable';
}
