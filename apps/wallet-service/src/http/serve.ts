import type { ExecutionConfiguration, Principal } from '@framework/core';
import type { z } from '@hono/zod-openapi';

import { documentOperation, replayedHeader } from './document-operation.js';
import { type AnswerStatus, type Operation, type OperationInput, operationInput } from './operation.js';
import { InvalidRequestError } from './parse-shape.js';
import { problemOf, problemResponse } from './problem-of.js';
import { idempotencyKey } from './request-fields.js';
import { type WalletApp, requestIdHeader } from './wallet-app-env.js';

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
}

/** The answer of a handler. */
interface Reply<Answer extends z.ZodType> {
  /** The status of the answer. Default 200. */
  readonly status?: AnswerStatus;
  /** The address of the created resource. */
  readonly location?: string;
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
  app.on(operation.method.toUpperCase(), routingPath(operation.path), async (context) => {
    const principal = context.get('principal');
    const key = operation.method === 'post' ? idempotencyKey(context.req.raw.headers) : undefined;
    const execution: ExecutionConfiguration = {
      headers: { 'request-id': context.get('requestId') },
      ...(key !== undefined && {
        idempotencyKey: key,
        onReplayed: () => context.header(replayedHeader, 'true'),
      }),
    };
    const input = await operationInput(operation, context);
    const { status = 200, location, body } = await handler({ ...input, principal, execution });
    context.header('content-type', 'application/json');
    if (location !== undefined) context.header('location', location);
    return context.body(JSON.stringify(body), status);
  });
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
    app.all(path, ({ req, var: { requestId } }) => {
      if (req.method === 'OPTIONS') {
        return new Response(null, { status: 204, headers: { allow, [requestIdHeader]: requestId } });
      }
      const fault = new InvalidRequestError(
        'method-not-allowed',
        `${req.method} is not supported: use ${allow}`,
      );
      const response = problemResponse(problemOf(fault), requestId);
      response.headers.set('allow', allow);
      return response;
    });
  }
}
