import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import { problemOf } from './problem/problem-of.js';
import { problemResponse } from './problem/problem-response.js';
import { requestIdHeader } from './request-id-header.js';
import type { WebHandler } from './http-server.js';

/** Answers for what never becomes a request of the app: as the app would, with an id that the log knows. */
export function refusals(logger: Logger): Pick<WebHandler, 'refuse' | 'describe'> {
  return {
    refuse: (error) => {
      const requestId = randomUUID();
      const problem = problemOf(error);
      logger.info({ requestId, status: problem.status, reason: problem.detail }, 'request refused');
      return problemResponse(problem, requestId);
    },
    describe: () => {
      const headers = { allow: 'GET, HEAD, POST, OPTIONS', [requestIdHeader]: randomUUID() };
      return new Response(null, { status: 204, headers });
    },
  };
}
