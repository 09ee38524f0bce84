import type { ExecutionConfiguration, Principal } from '@framework/core';
import { actionNameOf, modelNameOf } from '@framework/core/adapter';
import type { z } from '@hono/zod-openapi';
import type { Context } from 'hono';

import { UnexpectedVersionError } from '../wallet/wallet-error.js';
import { documentOperation, replayedHeader } from './document-operation.js';
import {
  type AnswerStatus,
  type Operation,
  type OperationInput,
  isConditional,
  operationInput,
} from './operation.js';
import { InvalidRequestError } from './parse-shape.js';
import {
  entityTag,
  expectedVersions,
  isKnown,
  prefersMinimal,
  refuseUncheckedConditions,
} from './preconditions.js';
import { problemOf, problemResponse } from './problem-of.js';
import { idempotencyKey } from './request-fields.js';
import { shardsIn } from './shard-capacity.js';
import { type LogSubject, type WalletApp, type WalletEnv, requestIdHeader } from './wallet-app-env.js';

type NoFields = z.ZodObject<Readonly<Record<string, z.ZodNever>>>;

/** The part of a request that a handler sees. */
interface Call<
  Path extends z.ZodObject,
  Query extends z.ZodObject,
  Body extends z.ZodObject,
> extends OperationInput<Path, Query, Body> {
  readonly principal: Principal;
  /** Passes the request's id on to the events of an action, and its idempotency key to the action's effect. */
  readonly execution: ExecutionConfiguration;
  /** The versions of which the resource must have one; `undefined` when any will do. */
  readonly expectedVersions: readonly number[] | undefined;
}

/** The answer of a handler. */
interface Reply<Answer extends z.ZodType> {
  /** The status of the answer. Default 200. */
  readonly status?: AnswerStatus;
  /** The address of the created resource. */
  readonly location?: string;
  /** The resource that the body represents, for an operation that is versioned. */
  readonly resource?: { readonly address: string; readonly version: number };
  readonly body: z.input<Answer>;
}

/** Adds an operation to the HTTP layer and to its OpenAPI document. */
export function serve<
  Answer extends z.ZodType,
  Path extends z.ZodObject = NoFields,
  Query extends z.ZodObject = NoFields,
  Body extends z.ZodObject = NoFields,
>(
  app: WalletApp,
  operation: Operation<Path, Query, Body, Answer>,
  handler: (call: Call<Path, Query, Body>) => Reply<Answer> | Promise<Reply<Answer>>,
): void {
  documentOperation(app, operation);
  const subject = subjectOf(operation);
  app.on(operation.method.toUpperCase(), routingPath(operation.path), async (context) => {
    const principal = context.get('principal');
    if (subject !== undefined) context.set('subject', subject);
    const key = operation.method === 'post' ? idempotencyKey(context.req.raw.headers) : undefined;
    const execution: ExecutionConfiguration = {
      headers: { 'request-id': context.get('requestId') },
      ...(key !== undefined && {
        idempotencyKey: key,
        onReplayed: () => context.header(replayedHeader, 'true'),
      }),
    };
    const capacity = context.get('capacity');
    const id = context.req.param('id');
    // Before the body is read. A request is counted only after that, because a slow client must not occupy a shard.
    if (id !== undefined) capacity.assertFree(shardsIn(id));
    const input = await operationInput(operation, context);
    context.set('input', input.body);
    const { headers } = context.req.raw;
    if (operation.method === 'post') refuseUncheckedConditions(headers, isConditional(operation));
    const expected = expectedVersions(headers);
    const call = { ...input, principal, execution, expectedVersions: expected };
    const shards = operation.shardsOf?.(input);
    if (shards !== undefined) context.set('shards', shards);
    const reply = await (shards === undefined ? handler(call) : capacity.use(shards, () => handler(call)));
    return operation.method === 'get' ? answerRead(context, reply, expected) : answerWrite(context, reply);
  });
}

/** Answers a read: with nothing if the client has this version already, and not at all if it expects another one. */
function answerRead(
  context: Context<WalletEnv>,
  { status = 200, resource, body }: Reply<z.ZodType>,
  expected: readonly number[] | undefined,
): Response {
  if (resource !== undefined) {
    const { version } = resource;
    if (expected?.includes(version) === false) throw new UnexpectedVersionError(version);
    context.header('etag', entityTag(version));
    if (isKnown(context.req.raw.headers, version)) return context.body(null, 304);
  }
  context.header('content-type', 'application/json');
  return context.body(JSON.stringify(body), status);
}

/** Answers a write: with the resource as it is now, unless the client does not need it. */
function answerWrite(
  context: Context<WalletEnv>,
  { status = 200, location, resource, body }: Reply<z.ZodType>,
): Response {
  if (location !== undefined) context.header('location', location);
  if (resource !== undefined) context.header('etag', entityTag(resource.version));
  if (prefersMinimal(context.req.raw.headers)) {
    context.header('preference-applied', 'return=minimal');
    return context.body(null, status === 200 ? 204 : status);
  }
  if (resource !== undefined) context.header('content-location', resource.address);
  context.header('content-type', 'application/json');
  return context.body(JSON.stringify(body), status);
}

function subjectOf({ model, action }: Operation): LogSubject | undefined {
  if (model === undefined) return undefined;
  return { model: modelNameOf(model), ...(action && { action: actionNameOf(action) }) };
}

/** Converts `/wallets/{id}` to the router's form: `/wallets/:id`. */
function routingPath(path: string): string {
  return path.replace(/\{(\w+)\}/g, ':$1');
}

/**
 * Answers methods that a path does not support: OPTIONS with the list of supported ones, others with a problem. Call it
 * last.
 */
export function answerOtherMethods(app: WalletApp): void {
  const routes = app.routes.filter(({ method, path }) => method !== 'ALL' && !path.includes('*'));
  for (const [path, ofPath] of Map.groupBy(routes, (route) => route.path)) {
    const methods = ofPath.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
    const allow = [...new Set(methods), 'OPTIONS'].join(', ');
    app.all(path, (context) => {
      const {
        req,
        var: { requestId },
      } = context;
      if (req.method === 'OPTIONS') {
        return new Response(null, { status: 204, headers: { allow, [requestIdHeader]: requestId } });
      }
      const fault = new InvalidRequestError(
        'method-not-allowed',
        `${req.method} is not supported: use ${allow}`,
      );
      const problem = problemOf(fault);
      context.set('unansweredCode', problem.code);
      const response = problemResponse(problem, requestId);
      response.headers.set('allow', allow);
      return response;
    });
  }
}
