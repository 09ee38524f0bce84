import * as z from 'zod';

const date = z.iso.datetime();
const shards = z.array(z.string()).meta({ example: ['1/0'], description: 'The shards of the database' });

const failureSchema = z
  .object({ shards, code: z.string(), detail: z.string().optional() })
  .meta({ id: 'Failure', description: 'A database whose part is missing' });
const failures = z.array(failureSchema);

/** All items, apart from those of databases that failed. */
export function listOf(item: z.ZodType): z.ZodType {
  return z.object({ items: z.array(item), failures });
}

/** Some items, and where to continue. */
export function pageOf(item: z.ZodType): z.ZodType {
  return z.object({ items: z.array(item), next: z.string().optional(), failures });
}

export const consumerSchema = z
  .object({
    handler: z.string(),
    names: z.array(z.string()),
    isRelay: z.boolean().meta({ description: 'Whether it publishes to a broker' }),
    databases: z.array(
      z.object({
        shards,
        paused: z.boolean(),
        pendingCount: z.int(),
        oldestPendingMs: z.number(),
        blockedCount: z.int(),
        blockedIsLowerBound: z.boolean(),
        deadCount: z.int(),
        deadIsLowerBound: z.boolean(),
        processes: z.array(
          z.object({ processId: z.string(), slotCount: z.int(), untilDate: date.optional() }),
        ),
        freeSlotCount: z.int(),
      }),
    ),
  })
  .meta({ id: 'Consumer' });

const eventSchema = z
  .object({
    id: z.string(),
    slot: z.int(),
    namespace: z.string(),
    actionId: z.string(),
    actionName: z.string(),
    actionParams: z.unknown().optional(),
    principal: z.string(),
    headers: z.record(z.string(), z.string()),
    ordinal: z.int(),
    modelId: z.string(),
    modelName: z.string(),
    modelVersion: z.int(),
    type: z.string(),
    payload: z.unknown().optional(),
    bytes: z.int().optional(),
    omitted: z
      .boolean()
      .optional()
      .meta({ description: 'Payload and params are left out: ask for the event' }),
    startedDate: z.string(),
    createdDate: z.string(),
  })
  .meta({ id: 'Event' });

const tracked = {
  event: eventSchema,
  deliveries: z.array(
    z.object({ handler: z.string(), state: z.enum(['passed', 'pending', 'blocked', 'dead-letter']) }),
  ),
};
export const trackedEventSchema = z.object({ ...tracked, shards }).meta({ id: 'TrackedEvent' });

export const explainedEventSchema = z
  .object({
    event: eventSchema,
    standings: z.array(z.looseObject({ handler: z.string(), paused: z.boolean(), kind: z.string() })),
    shards,
  })
  .meta({ id: 'ExplainedEvent' });

export const blockedSchema = z
  .object({
    handler: z.string(),
    event: eventSchema,
    attempts: z.int(),
    uncounted: z.int(),
    error: z.string().optional(),
    dead: z.boolean(),
    blockedDate: date,
    nextAttemptDate: date.optional(),
  })
  .meta({ id: 'BlockedEvent' });

export const deadLetterSchema = z
  .object({
    handler: z.string(),
    errorLine: z.string(),
    count: z.int(),
    isLowerBound: z.boolean(),
    exampleEventId: z.string(),
    oldestDate: date,
    shards,
  })
  .meta({ id: 'DeadLetterGroup' });

export const actionSchema = z
  .object({
    actionId: z.string(),
    actionName: z.string(),
    actionParams: z.unknown(),
    principal: z.string(),
    namespace: z.string(),
    startedDate: date,
    createdDate: date,
    events: z.array(z.object(tracked)),
    shards,
  })
  .meta({ id: 'Action' });

export const keySchema = z
  .object({
    key: z.string(),
    principal: z.string(),
    namespace: z.string(),
    actionId: z.string(),
    actionName: z.string(),
    createdDate: date,
    expiresDate: date,
    source: z.string().optional(),
    action: actionSchema.omit({ shards: true }).optional(),
    shards,
  })
  .meta({ id: 'IdempotencyKey' });

export const explanationSchema = z
  .object({
    kind: z.enum(['event', 'model', 'action', 'extension', 'unknown']),
    sentences: z.array(z.string()),
    data: z.record(z.string(), z.unknown()),
    sides: z
      .array(
        z.object({
          title: z.string(),
          shard: z.string(),
          fields: z.record(z.string(), z.unknown()).optional(),
          failure: z.string().optional(),
        }),
      )
      .meta({ description: 'What lies on the shards concerned, where the application says so' }),
    failures,
  })
  .meta({ id: 'Explanation' });

const named = z.object({ name: z.string(), summary: z.string() });
export const aboutSchema = z
  .object({
    readOnly: z.boolean().meta({ description: 'Whether changes are refused' }),
    databases: z.array(z.object({ shards })),
    views: z.array(named),
    invariants: z.array(named),
  })
  .meta({ id: 'About' });

export const shardsSchema = z
  .object({
    shards,
    server: z.string(),
    eventCountEstimate: z.number(),
    newestEventDate: date.optional(),
    databaseBytes: z.number(),
    now: date,
    epoch: z.int(),
  })
  .meta({ id: 'Database' });

export const invariantStepSchema = z
  .object({
    items: z.array(z.object({ text: z.string(), id: z.string(), shards })),
    examinedCount: z.int(),
    next: z.string().optional(),
    failures,
  })
  .meta({ id: 'InvariantStep' });

export const recordedChangeSchema = z
  .object({
    changeId: z.string(),
    operation: z.string(),
    actor: z.string(),
    reason: z.string(),
    target: z.record(z.string(), z.unknown()),
    begunDate: date,
    ended: z
      .object({
        endedDate: date,
        outcome: z.enum(['done', 'failed']),
        count: z.int(),
        errorCode: z.string().optional(),
        errorText: z.string().optional(),
      })
      .optional()
      .meta({ description: 'Missing while the change goes on, and for ever if its process died' }),
    shards,
  })
  .meta({ id: 'RecordedChange' });

export const changeSchema = z
  .object({
    changeId: z.string().optional().meta({ description: 'Missing for a dry run' }),
    count: z.int(),
    mayBeMore: z.boolean(),
    items: z.array(z.object({ shards, count: z.int(), mayBeMore: z.boolean() })),
    failures,
  })
  .meta({ id: 'Change' });
