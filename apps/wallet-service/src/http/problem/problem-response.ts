import type { Problem } from './problem-of.js';
import { requestIdHeader } from '../request-id-header.js';
import type { ProblemBody } from './problem-schema.js';

/** The media type of problem details (RFC 9457). */
export const problemMediaType = 'application/problem+json';

/** Answers a problem. */
export function problemResponse(problem: Problem, requestId: string): Response {
  const body: ProblemBody = {
    type: `urn:problem-type:wallet-service:${problem.name}`,
    title: problem.title,
    status: problem.status,
    detail: problem.detail,
    code: problem.code,
    instance: `urn:uuid:${requestId}`,
    ...(problem.faults.length > 0 && { errors: problem.faults }),
  };
  const headers = new Headers({ 'content-type': problemMediaType, [requestIdHeader]: requestId });
  if (problem.retryAfterSeconds !== undefined) headers.set('retry-after', String(problem.retryAfterSeconds));
  // The rest of a body that is too large is not worth reading.
  if (problem.name === 'body-too-large') headers.set('connection', 'close');
  return new Response(JSON.stringify(body), { status: problem.status, headers });
}
