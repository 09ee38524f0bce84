import { type OpenAPIHono, createRoute, z } from '@hono/zod-openapi';
import type { Context } from 'hono';

import {
  type ProblemStatus,
  type RequestIssue,
  RequestProblem,
  problemMediaType,
  problemSchema,
  problemTitles,
} from './problems.js';

type Shape = z.ZodObject;
type NoFields = z.ZodObject<Readonly<Record<string, z.ZodNever>>>;

/** One method of one path. */
export interface Operation<Path extends Shape, Query extends Shape, Body extends Shape> {
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  readonly pathFields?: Path;
  readonly query?: Query;
  /** The body of a change; an operation without one only reads. */
  readonly body?: Body;
  readonly answer: z.ZodType;
}

/** The input of a request, validated against its operation. */
interface Input<Path extends Shape, Query extends Shape, Body extends Shape> {
  readonly path: z.output<Path>;
  readonly query: z.output<Query>;
  readonly body: z.output<Body>;
}

/** Adds operations to an app and to its OpenAPI document. */
export class Operations {
  /** Whether changes are refused. */
  readonly readOnly: boolean;
  readonly #app: OpenAPIHono;

  constructor(app: OpenAPIHono, readOnly: boolean) {
    this.#app = app;
    this.readOnly = readOnly;
  }

  add<Path extends Shape = NoFields, Query extends Shape = NoFields, Body extends Shape = NoFields>(
    operation: Operation<Path, Query, Body>,
    handler: (input: Input<Path, Query, Body>) => Promise<unknown>,
  ): void {
    const { path, tag, summary, description, pathFields, query, body, answer } = operation;
    const isChange = body !== undefined;
    const method = isChange ? 'post' : 'get';
    const statuses: readonly ProblemStatus[] = isChange
      ? [400, 401, 403, 404, 413, 415, 500, 503]
      : [400, 401, 404, 500, 503];
    const problem = { [problemMediaType]: { schema: problemSchema } };
    this.#app.openAPIRegistry.registerPath(
      createRoute({
        method,
        path,
        tags: [tag],
        summary,
        ...(description !== undefined && { description }),
        security: [{ token: [] }],
        request: {
          ...(pathFields && { params: pathFields }),
          ...(query && { query }),
          ...(body && { body: { required: true, content: { 'application/json': { schema: body } } } }),
        },
        responses: {
          200: { description: 'The answer', content: { 'application/json': { schema: answer } } },
          ...Object.fromEntries(
            statuses.map((status) => [status, { description: problemTitles[status], content: problem }]),
          ),
        },
      }),
    );
    this.#app.on(method.toUpperCase(), path.replace(/\{(\w+)\}/g, ':$1'), async (context) => {
      if (isChange && this.readOnly)
        throw new RequestProblem(
          403,
          'read-only',
          'Set framework.operator.read-only to false where changes are wanted',
        );
      const input = {
        path: pathFields && parsed('path', pathFields, context.req.param()),
        query: parsed('query', query ?? z.strictObject({}), singleValues(context.req.queries())),
        body: body && parsed('body', body, await jsonBody(context)),
      } as Input<Path, Query, Body>;
      return context.json(await handler(input));
    });
  }
}

function parsed<Schema extends z.ZodType>(part: string, schema: Schema, value: unknown): z.output<Schema> {
  const { data, error } = schema.safeParse(value);
  if (error === undefined) return data;
  const issues = error.issues.flatMap((issue): readonly RequestIssue[] => {
    const path = [part, ...issue.path].join('.');
    if (issue.code !== 'unrecognized_keys') return [{ path, message: issue.message }];
    return issue.keys.map((key) => ({ path: `${path}.${key}`, message: 'is not known: leave it out' }));
  });
  const detail = `The ${part} of the request has ${issues.length === 1 ? 'a mistake' : 'mistakes'}: correct ${issues.map(({ path }) => path).join(', ')}; /openapi.json says what is expected`;
  throw new RequestProblem(400, 'bad-request', detail, issues);
}

function singleValues(queries: Readonly<Record<string, readonly string[]>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(queries).map(([name, values]) => [name, values.length === 1 ? values[0] : values]),
  );
}

async function jsonBody({ req }: Context): Promise<unknown> {
  // Browsers send this type across origins only with a permission that is never given.
  if (!/^application\/json\s*(;|$)/i.test(req.header('content-type') ?? ''))
    throw new RequestProblem(415, 'unsupported-media-type', 'Send the body as application/json');
  try {
    return await req.json();
  } catch {
    throw new RequestProblem(400, 'bad-request', 'The body is not JSON');
  }
}
