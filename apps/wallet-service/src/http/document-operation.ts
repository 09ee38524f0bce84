import { type RouteConfig, createRoute, z } from '@hono/zod-openapi';

import { type Operation, isConditional } from './operation.js';
import { type ProblemCode, problemKinds, problemSchema } from './problem-kinds.js';
import { problemMediaType } from './problem-of.js';
import {
  idempotencyKeyCharactersMax,
  idempotencyKeyHeader,
  idempotencyKeyPattern,
} from './request-fields.js';
import type { WalletApp } from './wallet-app-env.js';

type Answers = RouteConfig['responses'];

/** The header of an answer that repeats the answer to an earlier, identical request. */
export const replayedHeader = 'Idempotency-Replayed';

const writeHeaders = z.object({
  [idempotencyKeyHeader]: z.string().min(1).max(idempotencyKeyCharactersMax).optional().openapi({
    pattern: idempotencyKeyPattern.source,
    description:
      'Makes the request safe to repeat: for 30 days, the same request with the same key has one effect and one answer.',
  }),
});

const minimal = z.enum(['return=minimal', 'return=representation']);

const preferHeaders = z.object({
  Prefer: minimal.optional().openapi({
    description: 'With `return=minimal`, a success is answered without a body.',
  }),
});

const changeHeaders = z.object({
  'If-Match': z.string().optional().openapi({
    description:
      'The `ETag` of the version that is to be changed; if the wallet has another one, nothing is changed.',
    example: '"2"',
  }),
});

const readHeaders = z.object({
  'If-Match': z.string().optional().openapi({ description: 'Answers only with one of these versions.' }),
  'If-None-Match': z
    .string()
    .optional()
    .openapi({ description: 'The `ETag` of the version that the client has: 304 if it is the current one.' }),
});

const versionHeaders = z.object({
  ETag: z.string().openapi({ description: 'The version of the resource, in quotes.', example: '"2"' }),
});

const replayedHeaders = z.object({
  [replayedHeader]: z.literal('true').optional().openapi({
    description: 'The request was served before, and this is the original answer.',
  }),
});

/** Adds an operation to the OpenAPI document, with all its answers and problems. */
export function documentOperation(app: WalletApp, operation: Operation): void {
  const {
    method,
    path,
    tag,
    summary,
    description,
    pathFields,
    query,
    body,
    bodyOptional = false,
  } = operation;
  const route = createRoute({
    method,
    path,
    tags: [tag],
    summary,
    ...(description !== undefined && { description }),
    request: {
      ...(pathFields && { params: pathFields }),
      ...(query && { query }),
      ...requestHeaders(operation),
      ...(body && { body: { required: !bodyOptional, content: { 'application/json': { schema: body } } } }),
    },
    responses: { ...answers(operation), ...problemAnswers(operation) },
  });
  app.openAPIRegistry.registerPath(route);
}

function requestHeaders(operation: Operation): { readonly headers?: z.ZodObject } {
  const { method, versioned = false } = operation;
  if (method === 'get') return versioned ? { headers: readHeaders } : {};
  const always = writeHeaders.extend(preferHeaders.shape);
  return { headers: isConditional(operation) ? always.extend(changeHeaders.shape) : always };
}

function answers(operation: Operation): Answers {
  const { method, answer, versioned = false } = operation;
  const content = { 'application/json': { schema: answer } };
  const shape = {
    ...(versioned && versionHeaders.shape),
    ...(method === 'post' && replayedHeaders.shape),
  };
  const headers = { headers: z.object(shape) };
  const full = Object.entries(operation.answers).map(
    ([status, description]) => [status, { description, content, ...headers }] as const,
  );
  return Object.fromEntries([
    ...full,
    ...emptyAnswers(operation).map(([status, description]) => [status, { description, ...headers }]),
  ]);
}

/** The successful answers without a body. */
function emptyAnswers({
  method,
  answers: full,
  versioned = false,
}: Operation): readonly (readonly [number, string])[] {
  if (method === 'get') return versioned ? [[304, 'The client has this version already']] : [];
  return 200 in full ? [[204, 'The change is made; the client prefers no body']] : [];
}

function problemAnswers(operation: Operation): Answers {
  const byStatus = Map.groupBy(problemsOf(operation), (name) => problemKinds[name].status);
  const content = { [problemMediaType]: { schema: problemSchema } };
  return Object.fromEntries(
    [...byStatus].map(([status, names]) => [
      status,
      { description: names.map(describe).join('\n\n'), content },
    ]),
  );
}

/** Problems that can occur before the operation is known. */
const unreadRequest: readonly ProblemCode[] = [
  'bad-request',
  'request-timeout',
  'expectation-failed',
  'headers-too-large',
  'too-many-requests',
];

function problemsOf({ method, problems, body }: Operation): readonly ProblemCode[] {
  const content: readonly ProblemCode[] = body ? ['body-too-large', 'unsupported-media-type'] : [];
  const key: readonly ProblemCode[] =
    method === 'post' ? ['idempotency-key-reused', 'audit-unavailable'] : [];
  return [...unreadRequest, ...content, ...problems, ...key, 'internal'];
}

/** The part of an OpenAPI document that says who may do what. */
type Document = ReturnType<WalletApp['getOpenAPI31Document']>;

/** The paths of which every operation needs a token. */
const tokenPath = /^\/(wallets|transfers)(\/|$)/;
/** The operations that some who have a token may not do; for the others, what they may not do is not there. */
const forbidding: ReadonlySet<string> = new Set(['post /wallets']);

/** Adds to the document that operations on wallets and transfers need a token. */
export function documentTokens(document: Document): Document {
  const content = { [problemMediaType]: { schema: { $ref: '#/components/schemas/Problem' } } };
  const paths = Object.entries(document.paths ?? {}).map(([path, methods]) => {
    if (!tokenPath.test(path)) return [path, methods];
    const documented = Object.entries(methods).map(([method, operation]) => {
      const names: readonly ProblemCode[] = forbidding.has(`${method} ${path}`)
        ? ['unauthorized', 'forbidden']
        : ['unauthorized'];
      const refusals = names.map((name) => [
        problemKinds[name].status,
        { description: describe(name), content },
      ]);
      const responses = { ...operation.responses, ...Object.fromEntries(refusals) };
      return [method, { ...operation, security: [{ bearer: [] }], responses }];
    });
    return [path, Object.fromEntries(documented)];
  });
  const securitySchemes = { bearer: { type: 'http' as const, scheme: 'bearer', bearerFormat: 'JWT' } };
  return {
    ...document,
    paths: Object.fromEntries(paths),
    components: { ...document.components, securitySchemes },
  };
}

function describe(name: ProblemCode): string {
  const { code, title } = problemKinds[name];
  return `\`${code ?? name}\`: ${title}`;
}
