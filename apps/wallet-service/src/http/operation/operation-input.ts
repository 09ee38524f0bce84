import type { z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { readJsonBody } from '../request/json-body.js';
import { parseShape } from '../request/parse-shape.js';
import { RequestFault } from '../request/request-fault.js';
import type { WalletEnv } from '../wallet-app-env.js';
import type { Operation } from './operation.js';

/** What a request asks for, checked against its operation. */
export interface OperationInput<
  Path extends z.ZodObject,
  Query extends z.ZodObject,
  Body extends z.ZodObject,
> {
  readonly path: z.output<Path>;
  readonly query: z.output<Query>;
  readonly body: z.output<Body>;
}

/**
 * Reads the parts of a request that its operation declares; the others are `undefined`, and no handler reads them.
 *
 * @throws RequestFault for the first part that is malformed, with all its faults
 */
export async function operationInput<
  Path extends z.ZodObject,
  Query extends z.ZodObject,
  Body extends z.ZodObject,
>(
  operation: Operation<Path, Query, Body>,
  { req: request, env }: Context<WalletEnv>,
): Promise<OperationInput<Path, Query, Body>> {
  const { pathFields, query, body, bodyOptional = false } = operation;
  return {
    path: pathFields && parseShape('path', pathFields, request.param()),
    query: query && parseShape('query', query, singleValues(request.queries())),
    body: body && parseShape('body', body, await readJsonBody(env.body, request.raw.headers, bodyOptional)),
  } as OperationInput<Path, Query, Body>;
}

function singleValues(queries: Readonly<Record<string, string[]>>): Record<string, string | undefined> {
  const repeated = Object.keys(queries).filter((name) => (queries[name]?.length ?? 0) > 1);
  if (repeated.length > 0) {
    const faults = repeated.map((name) => ({
      pointer: `query/${name}`,
      message: 'occurs more than once',
    }));
    throw new RequestFault('bad-request', 'A query parameter occurs more than once', { faults });
  }
  return Object.fromEntries(Object.entries(queries).map(([name, values]) => [name, values[0]]));
}
