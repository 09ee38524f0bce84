import type { Context } from 'hono';
import type { Logger } from 'pino';
import { errorReason, errorStack } from '../error-stack.js';
import type { Problem } from './problem/problem-of.js';
import type { WalletEnv } from './wallet-app-env.js';

/** Writes one line per request: never a body, a query or a header. */
export function logRequest(logger: Logger, context: Context<WalletEnv>, tookMs: number): void {
  const { method, path } = context.req;
  const { status } = context.res;
  const requestId = context.get('requestId');
  logger.info({ requestId, method, path, status, durationMs: Math.round(tookMs) }, 'request');
}

/** Writes down what operators need to know of a problem, by the request's id that the client was told. */
export function logProblem(
  logger: Logger,
  { req, var: { requestId } }: Context<WalletEnv>,
  { name, status }: Problem,
  error: unknown,
): void {
  const { method, path } = req;
  if (status === 500) logger.error({ requestId, method, path, stack: errorStack(error) }, 'internal error');
  if (status > 500) logger.warn({ requestId, method, path, reason: errorReason(error) }, name);
}
