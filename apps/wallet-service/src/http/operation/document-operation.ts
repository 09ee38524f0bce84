import { type RouteConfig, createRoute } from '@hono/zod-openapi';
import { type ProblemCode, problemKinds } from '../problem/problem-kinds.js';
import { problemMediaType } from '../problem/problem-response.js';
import { problemSchema } from '../problem/problem-schema.js';
import type { WalletApp } from '../wallet-app-env.js';
import type { Operation } from './operation.js';

type Answers = RouteConfig['responses'];

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
      ...(body && { body: { required: !bodyOptional, content: { 'application/json': { schema: body } } } }),
    },
    responses: { ...answers(operation), ...problemAnswers(operation) },
  });
  app.openAPIRegistry.registerPath(route);
}

function answers(operation: Operation): Answers {
  const content = { 'application/json': { schema: operation.answer } };
  return Object.fromEntries(
    Object.entries(operation.answers).map(([status, description]) => [status, { description, content }]),
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

function problemsOf({ problems, pathFields, query, body }: Operation): readonly ProblemCode[] {
  const shape: readonly ProblemCode[] = pathFields || query || body ? ['bad-request'] : [];
  const content: readonly ProblemCode[] = body ? ['body-too-large', 'unsupported-media-type'] : [];
  return [...shape, ...content, ...problems, 'internal'];
}

function describe(name: ProblemCode): string {
  const { code, title } = problemKinds[name];
  return `\`${code ?? name}\`: ${title}`;
}
