import type { ExecutionConfiguration, Principal } from '@framework/core';
import type { z } from '@hono/zod-openapi';

import { documentOperation, replayedHeader } from './document-operation.js';
import { type AnswerStatus, type Operation, type OperationInput, operationInput } from './operation.js';
import { InvalidRequestError } from './parse-shape.js';
import { problemOf, problemResponse } from './problem-of.js';
import { idempotencyKey } from './request-fields.js';
import { type WalletApp, requestIdHeader } from './wallet-app-env.js';

type NoFields = z.ZodObject<Readonly<Record<string, z.ZodNever>>>;

/** What a handler gets to know of a request. */
interface Call<
  Path extends z.ZodObject,
  Query extends z.ZodObject,
  Body extends z.ZodObject,
> extends OperationInput<Path, Query, Body> {
  readonly principal: Principal;
  /** Passes the request's id on to the events that an action leads to, and its idempotency key to the effect. */
  readonly execution: ExecutionConfiguration;
}

/** What a handler answers. */
interface Reply<Answer extends z.ZodType> {
  /** Default 200. */
  readonly status?: AnswerStatus;
  /** Where that which was made can be read. */
  readonly location?: string;
  readonly body: z.input<Answer>;
}

/** Adds an operation to the HTTP entry and to its OpenAPI document. */
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

/** `/wallets/{id}` as the router writes it: `/wallets/:id`. */
function routingPath(path: string): string {
  return path.replace(/\{(\w+)\}/g, ':$1');
}

/** Answers methods that a path does not have: OPTIONS with those it has, others with a problem. Call it last. */
export function answerOtherMethods(app: WalletApp): void {
  const routes = app.routes.filter(({ method, path }) => method !== 'ALL' && !path.includes('*'));
  for (const [path, ofPath] of Map.groupBy(routes, (route) => route.path)) {
    const methods = ofPath.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
    const allow = [...new Set(methods), 'OPTIONS'].join(', ');
    app.all(path, ({ req, var: { requestId } }) => {
      if (req.method === 'OPTIONS') {
        return new Response(null, { status: 204, headers: { allow, [requestIdHeader]: requestId } });
      }
      const fault = new InvalidRequestError('method-not-allowed', `${req.method} is not among ${allow}`);
      const response = problemResponse(problemOf(fault), requestId);
      response.headers.set('allow', allow);
      return response;
    });
  }
}
