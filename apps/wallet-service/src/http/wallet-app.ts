import { OpenAPIHono } from '@hono/zod-openapi';
import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';

import { asyncapiRoute, docsRoutes, openapiRoute } from './docs-routes.js';
import { healthRoutes } from './health-routes.js';
import { InvalidRequestError } from './parse-shape.js';
import { problemOf, problemResponse } from './problem-of.js';
import { relayHealthRoute } from './relay-health-route.js';
import { logProblem, logRequest } from './request-deadline.js';
import { answerOtherMethods } from './serve.js';
import { transferRoutes } from './transfer-routes.js';
import { type WalletApp, type WalletEnv, type WalletService, requestIdHeader } from './wallet-app-env.js';
import { walletChangeRoutes } from './wallet-change-routes.js';
import { walletEventRoutes, walletRoutes } from './wallet-routes.js';

/**
 * Makes the HTTP layer of the wallet service: it turns requests into executed actions, and their results and errors
 * into answers.
 *
 * @param options.docs whether to serve `/docs`, a page for reading and trying the API. Default true.
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
    // Set before there is an answer: setting it later would make Hono copy the whole answer.
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
  if (service.relays.length > 0) relayHealthRoute(app, service);
  openapiRoute(app);
  asyncapiRoute(app, service);
  if (docs) docsRoutes(app);
  answerOtherMethods(app);

  app.notFound(({ var: { requestId } }) =>
    problemResponse(
      problemOf(
        new InvalidRequestError('not-found', `${docs ? '/docs' : '/openapi.json'} lists what is available`),
      ),
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
