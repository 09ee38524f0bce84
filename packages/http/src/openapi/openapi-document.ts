import { OpenAPIRegistry, OpenApiGeneratorV31, type RouteConfig } from '@asteasolutions/zod-to-openapi';
import { InvariantViolationError } from '@framework/core';
import * as z from 'zod';

import { type ProblemTable, problemMediaType } from '../problem/problem-table.js';
import {
  idempotencyKeyCharactersMax,
  idempotencyKeyHeader,
  idempotencyKeyPattern,
  replayedHeader,
} from '../request/idempotency-key.js';
import type { Route } from '../route/route.js';

type Answers = RouteConfig['responses'];

const preferHeaders = z.object({
  Prefer: z.enum(['return=minimal', 'return=representation']).optional().meta({
    description: 'With `return=minimal`, a success is answered without a body.',
  }),
});

const keyHeaders = z.object({
  [idempotencyKeyHeader]: z.string().min(1).max(idempotencyKeyCharactersMax).optional().meta({
    pattern: idempotencyKeyPattern.source,
    description:
      'Makes the request safe to repeat: for 30 days, the same request with the same key has one effect and one answer.',
  }),
});

const changeHeaders = z.object({
  'If-Match': z.string().optional().meta({
    description:
      'The `ETag` of the version that is to be changed; if the resource has another one, nothing is changed.',
    example: '"2"',
  }),
});

const readHeaders = z.object({
  'If-Match': z.string().optional().meta({ description: 'Answers only with one of these versions.' }),
  'If-None-Match': z
    .string()
    .optional()
    .meta({ description: 'The `ETag` of the version that the client has: 304 if it is the current one.' }),
});

const versionHeaders = z.object({
  ETag: z.string().meta({ description: 'The version of the resource, in quotes.', example: '"2"' }),
});

const replayedHeaders = z.object({
  [replayedHeader]: z.literal('true').optional().meta({
    description: 'The request was served before, and this is the original answer.',
  }),
});

/** What the document says of the service as a whole. */
export interface ApiInfo {
  readonly title: string;
  readonly version: string;
  readonly description?: string;
}

/** Writes the OpenAPI 3.1 document of routes, with all their answers and problems. */
export function openApiDocument(
  routes: readonly Route[],
  {
    info,
    problems,
    bearerFormat,
  }: {
    readonly info: ApiInfo;
    readonly problems: ProblemTable;
    /** The format of the tokens that the routes need which are not public; `undefined` if no route needs one. */
    readonly bearerFormat: string | undefined;
  },
): object {
  const registry = new OpenAPIRegistry();
  const needsTokens = bearerFormat !== undefined;
  if (needsTokens)
    registry.registerComponent('securitySchemes', 'bearer', { type: 'http', scheme: 'bearer', bearerFormat });
  for (const each of routes) registry.registerPath(configOf(each, problems, needsTokens && !isPublic(each)));
  try {
    return documentOf(registry, info);
  } catch (error) {
    throw undescribed(
      routes.find((each) => !isDescribable(configOf(each, problems, false))),
      error,
    );
  }
}

function documentOf({ definitions }: OpenAPIRegistry, info: ApiInfo): object {
  return new OpenApiGeneratorV31(definitions).generateDocument({ openapi: '3.1.0', info: { ...info } });
}

function isDescribable(config: RouteConfig): boolean {
  const registry = new OpenAPIRegistry();
  registry.registerPath(config);
  try {
    documentOf(registry, { title: '', version: '' });
    return true;
  } catch {
    return false;
  }
}

function undescribed(route: Route | undefined, cause: unknown): InvariantViolationError {
  const name = route === undefined ? 'The routes together' : `${route.method.toUpperCase()} ${route.address}`;
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new InvariantViolationError(
    `${name} cannot be described in the OpenAPI document: describe the schema with .meta({ type: … }) (${reason})`,
    { cause },
  );
}

function isPublic({ isPublic: open = false }: Route): boolean {
  return open;
}

function configOf(route: Route, problems: ProblemTable, needsToken: boolean): RouteConfig {
  const { method, address, tag, summary, description, path, query, body, bodyOptional = false } = route;
  return {
    method,
    path: address,
    ...(tag !== undefined && { tags: [tag] }),
    summary,
    ...(description !== undefined && { description }),
    ...(needsToken && { security: [{ bearer: [] }] }),
    request: {
      ...(path && { params: path }),
      ...(query && { query }),
      ...requestHeaders(route),
      ...(body && { body: { required: !bodyOptional, content: { 'application/json': { schema: body } } } }),
    },
    responses: { ...answersOf(route), ...problemAnswers(route, problems, needsToken) },
  };
}

function requestHeaders(route: Route): { readonly headers?: z.ZodObject } {
  const { method, action, versioned = false } = route;
  if (method === 'get') return versioned ? { headers: readHeaders } : {};
  const always = action === undefined ? preferHeaders : keyHeaders.extend(preferHeaders.shape);
  return { headers: route.checksVersion === true ? always.extend(changeHeaders.shape) : always };
}

function answersOf(route: Route): Answers {
  const { method, action, answer, versioned = false, answers = { 200: 'The answer' } } = route;
  const content = { [route.mediaType ?? 'application/json']: { schema: answer } };
  const shape = {
    ...(versioned && versionHeaders.shape),
    ...(action !== undefined && replayedHeaders.shape),
  };
  const headers = Object.keys(shape).length > 0 ? { headers: z.object(shape) } : {};
  const full = Object.entries(answers).map(
    ([status, description]) => [status, { description, content, ...headers }] as const,
  );
  const empty = emptyAnswers(method, answers, versioned);
  return Object.fromEntries([
    ...full,
    ...empty.map(([status, description]) => [status, { description, ...headers }]),
  ]);
}

/** The successful answers without a body. */
function emptyAnswers(
  method: Route['method'],
  answers: Readonly<Record<number, string>>,
  versioned: boolean,
): readonly (readonly [number, string])[] {
  if (method === 'get') return versioned ? [[304, 'The client has this version already']] : [];
  return 200 in answers ? [[204, 'The change is made; the client prefers no body']] : [];
}

function problemAnswers(route: Route, problems: ProblemTable, needsToken: boolean): Answers {
  const names = problemsOf(route, needsToken);
  const byStatus = Map.groupBy(names, (name) => problems.kind(name).status);
  const content = { [problemMediaType]: { schema: problems.schema } };
  const describe = (name: string): string => {
    const { code, title } = problems.kind(name);
    return `\`${code ?? name}\`: ${title}`;
  };
  return Object.fromEntries(
    [...byStatus].map(([status, ofStatus]) => [
      status,
      { description: ofStatus.map(describe).join('\n\n'), content },
    ]),
  );
}

/** Problems that can occur before the route is known. */
const unreadRequest = [
  'bad-request',
  'request-timeout',
  'expectation-failed',
  'headers-too-large',
  'too-many-requests',
];

function problemsOf({ action, problems = [], body }: Route, needsToken: boolean): readonly string[] {
  const content = body ? ['body-too-large', 'unsupported-media-type'] : [];
  const key = action === undefined ? [] : ['idempotency-key-reused', 'audit-unavailable'];
  const token = needsToken ? ['unauthorized'] : [];
  const own = problems.filter((name) => needsToken || name !== 'forbidden');
  return [...unreadRequest, ...content, ...own, ...key, 'internal', ...token];
}
