import { type Call, ProblemError, type Route, type RouteDefinition, route } from '@framework/http';
import * as z from 'zod';

import type { BulkChangeOptions, ChangeOptions } from '../changes.js';
import type { Operator } from '../operator.js';
import type { PublishAgainOptions } from '../publish-again.js';
import {
  aboutSchema,
  actionSchema,
  changeSchema,
  consumerSchema,
  deadLetterSchema,
  blockedSchema,
  explainedEventSchema,
  explanationSchema,
  invariantStepSchema,
  keySchema,
  listOf,
  pageOf,
  recordedChangeSchema,
  shardsSchema,
  trackedEventSchema,
} from './answer-schemas.js';

const text = (max = 255) => z.string().min(1).max(max);
const flag = z.enum(['true', 'false']).transform((value) => value === 'true');
const date = z.iso.datetime({ offset: true }).transform((value) => new Date(value));

const page = {
  limit: z
    .string()
    .regex(/^\d{1,4}$/, 'must be a whole number from 1 to 1000')
    .transform(Number)
    .pipe(z.int().min(1).max(1_000))
    .optional()
    .meta({ type: 'integer', description: 'The maximum number of items of the page' }),
  after: z.string().max(10_000).optional().meta({ description: 'The `next` of the previous page' }),
};
const id = { pathFields: z.strictObject({ id: text() }) };

const filterFields = {
  handler: text().optional(),
  eventId: z.uuid().optional(),
  eventType: text().optional(),
  modelId: text().optional(),
  // Empty for errors without a text, or one that begins with an empty line.
  errorLine: z
    .string()
    .max(200)
    .optional()
    .meta({ description: 'The first line of the error, up to 200 characters' }),
};

const searchFields = {
  shard: z
    .string()
    .regex(/^\d{1,3}\/\d{1,2}$/, 'must be group/member, such as 1/0')
    .optional(),
  modelId: text().optional(),
  actionId: z.uuid().optional(),
  action: text().optional(),
  type: text().optional(),
  principal: text().optional(),
  since: date.optional(),
  until: date.optional(),
};

/** Consumers, blocked events, the log and the audit. */
export function readRoutes(operator: Operator, readOnly: boolean): readonly Route[] {
  return [
    read(
      {
        path: '/about',
        tag: 'Application',
        summary: 'What this operator can be asked, and whether it may make changes',
        answer: aboutSchema,
      },
      async () => ({
        readOnly,
        databases: operator.shardsOfDatabases.map((shards) => ({ shards })),
        views: operator.views.map(({ name, summary }) => ({ name, summary })),
        invariants: operator.invariants.map(({ name, summary }) => ({ name, summary })),
      }),
    ),
    read(
      {
        path: '/shards',
        tag: 'Delivery',
        summary: 'The databases, with estimates of their logs',
        answer: listOf(shardsSchema),
      },
      () => operator.shards(),
    ),
    read(
      {
        path: '/consumers',
        tag: 'Delivery',
        summary: 'How far each handler and relay is',
        answer: listOf(consumerSchema),
      },
      () => operator.consumers(),
    ),
    read(
      {
        path: '/blocked',
        tag: 'Delivery',
        summary:
          'Dead letters and events that will be tried again, the first of each model, the oldest first',
        query: z.strictObject({ ...filterFields, dead: flag.optional(), ...page }),
        answer: pageOf(blockedSchema),
      },
      ({ query: { limit, after, ...filter } }) => operator.blocked(given(filter), { limit, after }),
    ),
    read(
      {
        path: '/dead-letters',
        tag: 'Delivery',
        summary: 'Dead letters by handler and error',
        description: 'Groups are counted up to 10,000; `isLowerBound` says that there are more.',
        query: z.strictObject({ handler: text().optional(), ...page }),
        answer: pageOf(deadLetterSchema),
      },
      ({ query: { handler, limit, after } }) => operator.deadLetters({ handler }, { limit, after }),
    ),
    read(
      {
        path: '/models/{id}',
        tag: 'Log',
        summary: 'The history of a model',
        ...id,
        query: z.strictObject(page),
        answer: pageOf(trackedEventSchema),
      },
      ({ path, query }) => operator.model(path.id, query),
    ),
    read(
      {
        path: '/events',
        tag: 'Log',
        summary: 'Events of the logs, the newest first',
        description:
          'A search by action, type or principal needs `since`, a model or an action id. A page may be empty and still have a `next`.',
        query: z.strictObject({ ...searchFields, ...page }),
        answer: pageOf(trackedEventSchema),
      },
      ({ query: { limit, after, ...filter } }) => operator.events(given(filter), { limit, after }),
    ),
    read(
      {
        path: '/events/{id}',
        tag: 'Log',
        summary: 'One event, and why handlers have not passed it',
        ...id,
        answer: listOf(explainedEventSchema),
      },
      ({ path }) => operator.event(path.id),
    ),
    read(
      {
        path: '/actions/{id}',
        tag: 'Log',
        summary: 'What an action committed',
        ...id,
        answer: listOf(actionSchema),
      },
      ({ path }) => operator.action(path.id),
    ),
    read(
      {
        path: '/idempotency-keys',
        tag: 'Log',
        summary: 'What was committed under an idempotency key',
        query: z.strictObject({ key: text(), principal: text().optional() }),
        answer: listOf(keySchema),
      },
      ({ query }) => operator.idempotencyKey(query.key, query.principal),
    ),
    read(
      {
        path: '/why/{id}',
        tag: 'Log',
        summary: 'What stands in the way of an event, a model, an action or something of the application',
        ...id,
        answer: explanationSchema,
      },
      ({ path }) => operator.why(path.id),
    ),
    read(
      {
        path: '/audit',
        tag: 'Changes',
        summary: 'What operators have changed, the newest first',
        query: z.strictObject(page),
        answer: pageOf(recordedChangeSchema),
      },
      ({ query }) => operator.audit(query),
    ),
  ];
}

/** A question for each view of the application, and one for each of its invariants. */
export function applicationRoutes(operator: Operator): readonly Route[] {
  return [
    ...operator.views.map((view) =>
      read(
        {
          path: `/views/${view.name}`,
          tag: 'Application',
          summary: view.summary,
          query: z.strictObject(page),
          answer: pageOf(z.record(z.string(), z.unknown())),
        },
        ({ query: { limit = 100, after } }) => view.read({ limit, after }),
      ),
    ),
    ...operator.invariants.map((invariant) =>
      read(
        {
          path: `/invariants/${invariant.name}`,
          tag: 'Application',
          summary: invariant.summary,
          description: 'One step of the check; ask again with `next` until there is none.',
          query: z.strictObject(page),
          answer: invariantStepSchema,
        },
        ({ query: { limit = 1_000, after } }) => invariant.check({ limit, after }),
      ),
    ),
  ];
}

const signature = {
  by: text().meta({ description: 'Who makes the change' }),
  reason: text(1_000).meta({ description: 'Why' }),
  dryRun: z.boolean().optional().meta({ description: 'Only says what would be changed. Default false' }),
};
const bulk = z.strictObject({
  filter: z.strictObject({ ...filterFields, dead: z.boolean().optional() }),
  limit: z.int().min(1).max(100_000).optional().meta({ description: 'In each database. Default 10,000' }),
  ...signature,
});
const again = z.strictObject({
  relay: text().meta({ description: 'One of its names' }),
  filter: z.strictObject(searchFields),
  limit: z.int().min(1).max(100_000).optional().meta({
    description: 'More events of a database are refused, and none is published. Default 10,000',
  }),
  ...signature,
});
const ofHandler = z.strictObject({ handler: text(), ...signature });

/** The changes, each of which is recorded. */
export function changeRoutes(operator: Operator, readOnly: boolean): readonly Route[] {
  const of = (name: 'replay' | 'skip', summary: string): Route =>
    change(readOnly, { path: `/${name}`, summary, body: bulk }, ({ body: { filter, ...options } }) =>
      operator[name](given(filter), options satisfies BulkChangeOptions),
    );
  const ofOne = (name: 'pause' | 'resume', summary: string): Route =>
    change(readOnly, { path: `/${name}`, summary, body: ofHandler }, ({ body: { handler, ...options } }) =>
      operator[name](handler, options satisfies ChangeOptions),
    );
  return [
    of('replay', 'Gives dead letters all their attempts again'),
    of('skip', 'Passes over blocked events, so that those behind them continue'),
    change(
      readOnly,
      {
        path: '/publish-again',
        summary: 'Publishes events again that a relay has passed',
        description: 'Each message has the attribute `republished`. Nothing else of the relay changes.',
        body: again,
      },
      ({ body: { filter, ...options } }) =>
        operator.publishAgain(given(filter), options satisfies PublishAgainOptions),
    ),
    ofOne('pause', 'Pauses a handler'),
    ofOne('resume', 'Resumes a handler where it was'),
    change(
      readOnly,
      {
        path: '/retire',
        summary: 'Removes a handler that no code has any more',
        body: ofHandler.extend({ discardBlocked: z.boolean().optional() }),
      },
      ({ body: { handler, ...options } }) => operator.retire(handler, options),
    ),
  ];
}

type Shape = z.ZodObject;
type NoFields = z.ZodObject<Readonly<Record<string, z.ZodNever>>>;

/** What a route says of itself. */
interface Question<Path extends Shape, Query extends Shape, Body extends Shape> extends Pick<
  RouteDefinition<Path, Query, Body>,
  'summary' | 'description' | 'query' | 'body'
> {
  readonly path: string;
  readonly pathFields?: Path;
}

function read<Path extends Shape = NoFields, Query extends Shape = NoFields>(
  {
    path,
    pathFields,
    query,
    ...question
  }: Question<Path, Query, NoFields> & { readonly tag: string; readonly answer: z.ZodType },
  handler: (call: Call<Path, Query>) => Promise<unknown>,
): Route {
  return route.get(
    path,
    {
      ...question,
      ...(pathFields && { path: pathFields }),
      query: query ?? (z.strictObject({}) as unknown as Query),
      problems: ['not-found', 'unknown-handler', 'operator-request', 'invalid-cursor', 'shard-unavailable'],
    },
    async (call) => ({ body: await handler(call as unknown as Call<Path, Query>) }),
  );
}

const changeAnswer: z.ZodType = changeSchema;

function change<Body extends Shape>(
  readOnly: boolean,
  { path, ...question }: Question<NoFields, NoFields, Body> & { readonly body: Body },
  handler: (call: Call<NoFields, NoFields, Body>) => Promise<unknown>,
): Route {
  return route.post(
    path,
    {
      ...question,
      tag: 'Changes',
      answer: changeAnswer,
      query: z.strictObject({}) as NoFields,
      guard: () => {
        if (readOnly)
          throw new ProblemError(
            'read-only',
            'Set framework.operator.read-only to false where changes are wanted',
          );
      },
      problems: ['read-only', 'unknown-handler', 'operator-request', 'shard-unavailable'],
    },
    async (call) => ({ body: await handler(call as unknown as Call<NoFields, NoFields, Body>) }),
  );
}

/** The fields that are given, as the functions expect them. */
function given<Fields extends object>(fields: Fields): Defined<Fields> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as Defined<Fields>;
}

type Defined<Fields> = { [Name in keyof Fields]: Exclude<Fields[Name], undefined> };
