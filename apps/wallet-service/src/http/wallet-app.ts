import type { Principal } from '@framework/core';
import { httpInstrumentationMiddleware } from '@hono/otel';
import type { MeterProvider } from '@opentelemetry/api';
import { OpenAPIHono } from '@hono/zod-openapi';
import type { MiddlewareHandler } from 'hono';
import { etag } from 'hono/etag';
import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';

import type { AuditLog } from '../security/audit-log.js';
import type { RateLimits } from '../security/rate-limits.js';
import { auditWrites } from './audit-writes.js';
import { asyncapiRoute, docsRoutes, openapiRoute } from './docs-routes.js';
import { healthRoutes } from './health-routes.js';
import type { CorsSettings } from './http-settings.js';
import { InvalidRequestError } from './parse-shape.js';
import { problemOf, problemResponse } from './problem-of.js';
import { relayHealthRoute } from './relay-health-route.js';
import { RequestLog } from './request-log.js';
import { securityHeaders } from './security-headers.js';
import { answerOtherMethods } from './serve.js';
import type { ShardCapacity } from './shard-capacity.js';
import { transferRoutes } from './transfer-routes.js';
import { type WalletApp, type WalletEnv, type WalletService, requestIdHeader } from './wallet-app-env.js';
import { walletChangeRoutes } from './wallet-change-routes.js';
import { walletEventRoutes, walletRoutes } from './wallet-routes.js';

/** The principal of all requests when there is no authentication. */
const everybody: Principal = { name: 'wallet-service' };

/** What the HTTP layer needs besides the application. */
interface WalletAppOptions {
  readonly logger: Logger;
  /** Whether to serve `/docs`, a page for reading and trying the API. Default true. */
  readonly docs?: boolean;
  /** Whether it is served over TLS. Default false. */
  readonly encrypted?: boolean;
  /** The pages of other origins whose scripts may send requests. Default: none. */
  readonly cors?: CorsSettings | undefined;
  readonly rates: RateLimits;
  readonly capacity: ShardCapacity;
  /** Where requests are measured besides the SDK that is registered with OpenTelemetry's API. Default: nowhere. */
  readonly meterProvider?: MeterProvider | undefined;
  /** Records writes. Default: nothing does. */
  readonly audit?: AuditLog | undefined;
}

/**
 * Makes the HTTP layer of the wallet service: it turns requests into executed actions, and their results and errors
 * into answers.
 */
export function walletApp(service: WalletService, options: WalletAppOptions): WalletApp {
  const { logger, docs = true, encrypted = false, cors, rates, capacity, audit, meterProvider } = options;
  const app = new OpenAPIHono<WalletEnv>();
  const log = new RequestLog(logger);
  app.use(unlessFailed(httpInstrumentationMiddleware()));
  if (meterProvider !== undefined)
    app.use(unlessFailed(httpInstrumentationMiddleware({ disableTracing: true, meterProvider })));
  app.use(async (context, next) => {
    const requestId = randomUUID();
    context.set('requestId', requestId);
    context.set('capacity', capacity);
    const startedAtMs = performance.now();
    // Set before there is an answer: setting it later would make Hono copy the whole answer.
    context.header(requestIdHeader, requestId);
    await next();
    log.answered(context, performance.now() - startedAtMs);
  });
  securityHeaders(app, { encrypted, cors });
  if (audit !== undefined) auditWrites(app, audit);
  for (const path of ['/wallets/*', '/transfers/*']) {
    app.use(path, async (context, next) => {
      const { method, raw } = context.req;
      // OPTIONS only lists methods, and browsers ask it without a token.
      if (method !== 'OPTIONS') {
        const caller = await service.authentication?.principalOf(raw.headers);
        const refusal = caller && (await rates.refusal('principal', caller.name));
        if (refusal !== undefined) {
          context.env.pause(refusal.retryAfterMs);
          throw refusal;
        }
        context.set('principal', caller ?? everybody);
      }
      await next();
    });
  }

  walletRoutes(app, service);
  walletChangeRoutes(app, service);
  walletEventRoutes(app, service);
  transferRoutes(app, service);
  healthRoutes(app, service);
  if (service.relays.length > 0) relayHealthRoute(app, service);
  // They change only with the program, so that a client that has them gets 304.
  for (const path of ['/openapi.json', '/asyncapi.json', '/docs/*']) app.use(path, etag());
  openapiRoute(app, { needsTokens: service.authentication !== undefined });
  asyncapiRoute(app, service);
  if (docs) docsRoutes(app);
  answerOtherMethods(app);

  app.notFound((context) => {
    const problem = problemOf(
      new InvalidRequestError('not-found', `${docs ? '/docs' : '/openapi.json'} lists what is available`),
    );
    context.set('unansweredCode', problem.code);
    return problemResponse(problem, context.var.requestId);
  });
  app.onError((error, context) => {
    const problem = problemOf(error);
    log.problem(context, problem, error);
    return problemResponse(problem, context.var.requestId);
  });
  return app;
}

/**
 * Traces and measures requests. An error of the SDK must not change an answer: a deposit that is committed would look as if it had
 * failed.
 */
function unlessFailed(observed: MiddlewareHandler): MiddlewareHandler<WalletEnv> {
  return async (context, next) => {
    let answered: Promise<void> | undefined;
    const answer = (): Promise<void> => (answered ??= next());
    try {
      await observed(context, answer);
    } catch {
      // It may have failed before it has asked for the answer, or after.
    }
    await answer();
  };
}
