import {
  DatabaseNotReadyError,
  type DatabaseRegistry,
  type ShardIdentifier,
  type ShardStatus,
} from '@framework/core';
import { z } from '@hono/zod-openapi';

import { serve } from './serve.js';
import { type ShardCause, shardCauses } from './shard-causes.js';
import type { WalletApp, WalletService } from './wallet-app-env.js';

const liveSchema = z.object({ status: z.literal('live') }).openapi('Liveness');

const statusSchema = z.enum(['ready', 'unavailable']);

const causes = Object.keys(shardCauses) as [ShardCause, ...ShardCause[]];

const readySchema = z
  .object({
    status: statusSchema,
    shards: z.array(
      z.object({
        group: z.int(),
        member: z.int(),
        name: z.string().openapi({ example: 'mexico-1' }),
        status: statusSchema,
        cause: z.enum(causes).optional().openapi({ description: 'Why it is not ready' }),
        detail: z.string().optional().openapi({
          description: 'What that is, and what to do; host and database are in the log',
          example: 'its database does not exist: create the database, or correct jdbc-url',
        }),
      }),
    ),
  })
  .openapi('Readiness');

type ShardReadiness = z.input<typeof readySchema>['shards'][number];

/** Serves what orchestrators ask: whether the process lives, and whether every shard can serve. */
export function healthRoutes(
  app: WalletApp,
  {
    databases,
    delivery,
  }: {
    readonly databases: Pick<DatabaseRegistry, 'shards' | 'status'>;
    readonly delivery: Pick<WalletService['delivery'], 'startedOn' | 'restartNeed'>;
  },
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
  // Without it, a new handler would miss what is committed once traffic comes. What it rejects with is told elsewhere.
  const delivering = new Set<ShardIdentifier>();
  for (const shard of databases.shards) {
    delivery.startedOn(shard).then(
      () => delivering.add(shard),
      () => undefined,
    );
  }
  serve(
    app,
    {
      method: 'get',
      path: '/health/ready',
      tag: 'Health',
      summary: 'Tell which shards can serve',
      description: 'Requests that need only shards that are ready are served in either case.',
      answers: {
        200: 'All shards can serve',
        503: 'At least one cannot, or delivery has not started, or the process must be restarted',
      },
      answer: readySchema,
      problems: [],
    },
    async () => {
      const shards = await statusOf();
      const answers = shards.map((status) => shardReadiness(status, delivering.has(status.shard)));
      const ready = delivery.restartNeed === undefined && answers.every(({ status }) => status === 'ready');
      const status = ready ? ('ready' as const) : ('unavailable' as const);
      return { status: ready ? 200 : 503, body: { status, shards: answers } };
    },
  );
}

/** Asks once for all who ask at the same time, because every question opens a connection to each database. */
function sharedStatus(databases: Pick<DatabaseRegistry, 'status'>): () => Promise<readonly ShardStatus[]> {
  let running: Promise<readonly ShardStatus[]> | undefined;
  return () => {
    running ??= databases.status().finally(() => (running = undefined));
    return running;
  };
}

function shardReadiness(status: ShardStatus, delivers: boolean): ShardReadiness {
  const { shard, name } = status;
  const place = { group: shard.group, member: shard.member, name };
  const cause = causeOf(status, delivers);
  if (cause === undefined) return { ...place, status: 'ready' };
  const { what, remedy } = shardCauses[cause];
  return { ...place, status: 'unavailable', cause, detail: `${what}: ${remedy}` };
}

function causeOf({ ready, reason }: ShardStatus, delivers: boolean): ShardCause | undefined {
  if (ready) return delivers ? undefined : 'delivery-starting';
  return reason instanceof DatabaseNotReadyError ? reason.kind : 'opening';
}
