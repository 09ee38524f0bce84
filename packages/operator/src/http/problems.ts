import { FrameworkError } from '@framework/core';
import { z } from '@hono/zod-openapi';

/** The media type of a problem (RFC 9457). */
export const problemMediaType = 'application/problem+json';

export const problemSchema = z
  .object({
    type: z.literal('about:blank'),
    title: z.string(),
    status: z.int(),
    code: z.string(),
    detail: z.string().openapi({ description: 'What is wrong, and what to do' }),
    issues: z.array(z.object({ path: z.string(), message: z.string() })).optional(),
  })
  .openapi('Problem');

/** The statuses of answers that are problems, and what they mean. */
export const problemTitles = {
  400: 'The request is malformed',
  401: 'The token is missing or wrong',
  403: 'This listener changes nothing',
  404: 'Nothing has this name',
  405: 'The method is not supported here',
  413: 'The body is too large',
  415: 'The body is not application/json',
  500: 'Something went wrong',
  503: 'A database does not answer',
} as const;

export type ProblemStatus = keyof typeof problemTitles;

/** Where a part of a request is wrong, such as `query.limit`. */
export interface RequestIssue {
  readonly path: string;
  readonly message: string;
}

/** Ends a request with a problem. */
export class RequestProblem extends Error {
  readonly status: ProblemStatus;
  readonly code: string;
  readonly issues: readonly RequestIssue[] | undefined;

  constructor(status: ProblemStatus, code: string, detail: string, issues?: readonly RequestIssue[]) {
    super(detail);
    this.status = status;
    this.code = code;
    this.issues = issues;
  }
}

/** The framework's errors whose messages are about the request; any other error is answered by its code alone. */
const ofRequest: Readonly<Record<string, ProblemStatus>> = {
  'operator-request': 400,
  'invalid-cursor': 400,
  'invalid-page-limit': 400,
  'invariant-violation': 500,
  'unknown-handler': 404,
  'shard-unavailable': 503,
};

/** The problem that an error is answered with; nothing of a driver's message is shown. */
export function problemOf(error: unknown): RequestProblem {
  if (error instanceof RequestProblem) return error;
  const known = FrameworkError.find(error);
  const status = ofRequest[known?.code ?? ''] ?? 500;
  if (known !== undefined && status < 500) return new RequestProblem(status, known.code, known.message);
  return new RequestProblem(
    status,
    known?.code ?? 'internal',
    status === 503 ? 'Try again when it does.' : "The process's log says more.",
  );
}

export function problemResponse(problem: RequestProblem): Response {
  const { status, code, message: detail, issues } = problem;
  const body = {
    type: 'about:blank',
    title: problemTitles[status],
    status,
    code,
    detail,
    ...(issues && { issues }),
  };
  const headers = new Headers({ 'content-type': problemMediaType, 'cache-control': 'no-store' });
  if (status === 401) headers.set('www-authenticate', 'Bearer');
  return new Response(JSON.stringify(body), { status, headers });
}
