import { randomUUID } from 'node:crypto';
import { OpenAPIHono } from '@hono/zod-openapi';
import type { Logger } from 'pino';
import { answerOtherMethods } from './answer-other-methods.js';
import { problemOf } from './problem/problem-of.js';
import { problemResponse } from './problem/problem-response.js';
import { requestIdHeader } from './request-id-header.js';
import { logProblem, logRequest } from './request-log.js';
import { RequestFault } from './request/request-fault.js';
import { docsRoutes, openapiRoute } from './routes/docs-routes.js';
import { healthRoutes } from './routes/health-routes.js';
import { transferRoutes } from './routes/transfer-routes.js';
import { walletChangeRoutes } from './routes/wallet-change-routes.js';
import { walletEventRoutes } from './routes/wallet-event-routes.js';
import { walletRoutes } from './routes/wallet-routes.js';
import type { WalletApp, WalletEnv } from './wallet-app-env.js';
import type { WalletService } from './wallet-service.js';

/**
 * Makes the HTTP entry of the wallet service: requests in, actions executed, answers and problems out.
 *
 * @param options.docs whether there is a page to read and try it, `/docs`. Default true.
 */
export function walletApp(
  service: WalletService,
  { logger, docs = true }: { readonly logger: Logger; readonly docs?: boolean },
): WalletApp {
  const app = new OpenAPIHono<WalletEnv>();
  app.use(async (context, next) => {
    const requestId = randomUUID();
    context.set('requestId', requestId);
    const startedAtMs = performance.now();
    // Before there is an answer: afterwards, the whole answer would be made anew.
    context.header(requestIdHeader, requestId);
    await next();
    logRequest(logger, context, performance.now() - startedAtMs);
  });
  for (const path of ['/wallets/*', '/transfers/*']) {
    app.use(path, async (context, next) => {
      context.set('principal', await service.principalOf(context.req.raw));
      await next();
    });
  }

  walletRoutes(app, service);
  walletChangeRoutes(app, service);
  walletEventRoutes(app, service);
  transferRoutes(app, service);
  healthRoutes(app, service);
  openapiRoute(app);
  if (docs) docsRoutes(app);
  answerOtherMethods(app);

  app.notFound(({ var: { requestId } }) =>
    problemResponse(
      problemOf(new RequestFault('not-found', `${docs ? '/docs' : '/openapi.json'} shows what there is`)),
      requestId,
    ),
  );
  app.onError((error, context) => {
    const problem = problemOf(error);
    logProblem(logger, context, problem, error);
    return problemResponse(problem, context.var.requestId);
  });
  return app;
}
