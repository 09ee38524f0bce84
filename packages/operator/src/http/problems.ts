import type { ProblemKinds } from '@framework/http';

/** The problems of an operator's requests, besides those that every service has. */
export const operatorProblems: ProblemKinds = {
  unauthorized: {
    status: 401,
    title: 'The token is missing or wrong',
    detail: 'Send the header Authorization: Bearer with the token of framework.operator',
  },
  'read-only': { status: 403, title: 'This listener changes nothing' },
  'operator-request': { status: 400, title: 'The request cannot be met' },
  'invalid-cursor': { status: 400, title: 'The page does not exist' },
  'invalid-page-limit': { status: 400, title: 'The page is too large' },
  'unknown-handler': { status: 404, title: 'No database knows a handler of this name' },
  closing: { status: 503, title: 'The process is stopping' },
  'too-many-listeners': { status: 503, title: 'The stream has as many listeners as it may have' },
};
