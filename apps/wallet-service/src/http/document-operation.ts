import { type RouteConfig, createRoute, z } from '@hono/zod-openapi';

import type { Operation } from './operation.js';
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
      ...(method === 'post' && { headers: writeHeaders }),
      ...(body && { body: { required: !bodyOptional, content: { 'application/json': { schema: body } } } }),
    },
    responses: { ...answers(operation), ...problemAnswers(operation) },
  });
  app.openAPIRegistry.registerPath(route);
}

function answers(operation: Operation): Answers {
  const content = { 'application/json': { schema: operation.answer } };
  return Object.fromEntries(
    Object.entries(operation.answers).map(([status, description]) => [
      status,
      { description, content, ...(operation.method === 'post' && { headers: replayedHeaders }) },
    ]),
  );
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
];

function problemsOf({ method, problems, body }: Operation): readonly ProblemCode[] {
  const content: readonly ProblemCode[] = body ? ['body-too-large', 'unsupported-media-type'] : [];
  const key: readonly ProblemCode[] = method === 'post' ? ['idempotency-key-reused'] : [];
  return [...unreadRequest, ...content, ...problems, ...key, 'internal'];
}

function describe(name: ProblemCode): string {
  const { code, title } = problemKinds[name];
  return `\`${code ?? name}\`: ${title}`;
}
