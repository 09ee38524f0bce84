import type { DatabaseRegistry, ShardIdentifier } from '@framework/core';
import { DatabaseNotReadyError, type ShardStatus } from '@framework/core/adapter';
import * as z from 'zod';

import { type Route, route } from '../route/route.js';
import { type ShardCause, shardCauses } from './shard-causes.js';

const liveSchema = z.object({ status: z.literal('live') }).meta({ id: 'Liveness' });

const statusSchema = z.enum(['ready', 'unavailable']);

const causes = Object.keys(shardCauses) as [ShardCause, ...ShardCause[]];

const readySchema = z
  .object({
    status: statusSchema,
    shards: z.array(
      z.object({
        group: z.int(),
        member: z.int(),
        name: z.string().meta({ example: 'mexico-1' }),
        status: statusSchema,
        cause: z.enum(causes).optional().meta({ description: 'Why the shard is not ready' }),
        detail: z.string().optional().meta({
          description: 'The cause in words, and what to do; the log names host and database',
          example: 'its database does not exist: create the database, or correct jdbc-url',
        }),
      }),
    ),
  })
  .meta({ id: 'Readiness' });

type ShardReadiness = z.input<typeof readySchema>['shards'][number];

/** What the readiness check needs of a delivery. */
export interface DeliveryHealth {
  /** Resolves when it has started on the database of a shard. */
  startedOn(shard: ShardIdentifier): Promise<unknown>;
  /** Why the process must be restarted; `undefined` when it need not. */
  readonly restartNeed: unknown;
}

/** The health checks of orchestrators: whether the process is alive, and whether every shard is ready. */
export function healthRoutes({
  databases,
  delivery,
}: {
  readonly databases: Pick<DatabaseRegistry, 'shards' | 'status'>;
  /** Default: nothing is delivered. */
  readonly delivery?: DeliveryHealth;
}): readonly Route[] {
  const statusOf = sharedStatus(databases);
  // Until delivery has started on a shard, a new handler would miss events that are committed there. Errors are
  // reported elsewhere.
  const delivering = new Set<ShardIdentifier>();
  for (const shard of databases.shards) {
    (delivery?.startedOn(shard) ?? Promise.resolve()).then(
      () => delivering.add(shard),
      () => undefined,
    );
  }
  return [
    route.get(
      '/health/live',
      {
        tag: 'Health',
        summary: 'Check whether the process is alive',
        answers: { 200: 'The process is alive' },
        answer: liveSchema,
        isPublic: true,
      },
      () => ({ body: { status: 'live' as const } }),
    ),
    route.get(
      '/health/ready',
      {
        tag: 'Health',
        summary: 'Check which shards are ready',
        description: 'Requests that need only ready shards are served in either case.',
        answers: {
          200: 'All shards are ready',
          503: 'At least one shard is not ready, delivery has not started, or the process must be restarted',
        },
        answer: readySchema,
        isPublic: true,
      },
      async () => {
        const shards = await statusOf();
        const answers = shards.map((status) => shardReadiness(status, delivering.has(status.shard)));
        const ready =
          delivery?.restartNeed === undefined && answers.every(({ status }) => status === 'ready');
        const status = ready ? ('ready' as const) : ('unavailable' as const);
        return { status: ready ? 200 : 503, body: { status, shards: answers } };
      },
    ),
  ];
}

/** Shares one check among all callers at the same time, because each check opens a connection to every database. */
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
