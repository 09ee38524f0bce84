import type { ActionClass, ModelClass, ShardIdentifier } from '@framework/core';
import type { z } from '@hono/zod-openapi';
import type { Context } from 'hono';

import { InvalidRequestError, parseShape } from './parse-shape.js';
import type { ProblemCode } from './problem-kinds.js';
import { readJsonBody } from './request-body.js';
import type { WalletEnv } from './wallet-app-env.js';

/** The statuses of successful answers, and of a failed readiness check. */
export type AnswerStatus = 200 | 201 | 202 | 503;

/** One method of one path: its input, its answers, and its documentation. */
export interface Operation<
  Path extends z.ZodObject = z.ZodObject,
  Query extends z.ZodObject = z.ZodObject,
  Body extends z.ZodObject = z.ZodObject,
  Answer extends z.ZodType = z.ZodType,
> {
  readonly method: 'get' | 'post';
  /** The path, with parameters in braces, as OpenAPI writes them. */
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  readonly pathFields?: Path;
  readonly query?: Query;
  readonly body?: Body;
  /** Whether a missing body means the same as `{}`. */
  readonly bodyOptional?: boolean;
  /** Describes the answers that are not problems, by status. */
  readonly answers: Readonly<Partial<Record<AnswerStatus, string>>>;
  readonly answer: Answer;
  /**
   * Whether its answers represent one resource with a version. They have an `ETag`, and a client can demand a version if the path
   * names the resource.
   */
  readonly versioned?: boolean;
  /** The shards that a request asks. Default: none. */
  shardsOf?(input: OperationInput<Path, Query, Body>): readonly ShardIdentifier[];
  /** The model that it is about, and the action that it executes, which the log names. */
  readonly model?: ModelClass<unknown>;
  readonly action?: ActionClass<never, unknown>;
  /** The problems that it can have besides those that follow from its parts. */
  readonly problems: readonly ProblemCode[];
}

/** Whether a client can demand that the resource has a version. */
export function isConditional({ versioned = false, pathFields }: Operation): boolean {
  return versioned && pathFields !== undefined;
}

/** The input of a request, validated against its operation. */
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
 * Reads the parts of a request that its operation declares. Other parts are `undefined`, and no handler reads them.
 *
 * @throws InvalidRequestError for the first malformed part, with all its faults
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
    throw new InvalidRequestError('bad-request', 'A query parameter occurs more than once', { faults });
  }
  return Object.fromEntries(Object.entries(queries).map(([name, values]) => [name, values[0]]));
}
