import {
  HttpApi,
  type HttpLog,
  RequestLog,
  type ShardCapacity,
  healthRoutes,
  jsonDocument,
  relayHealthRoute,
} from '@framework/http';
import { type HonoEnv, honoApp } from '@framework/http/hono';
import type { AuditLog, CorsSettings, RateLimits } from '@framework/http/security';
import { httpInstrumentationMiddleware } from '@hono/otel';
import type { MeterProvider } from '@opentelemetry/api';
import { Hono, type MiddlewareHandler } from 'hono';

import { publishedEvents } from './published-events.js';
import { transferRoutes } from './routes/transfer-routes.js';
import { walletChangeRoutes } from './routes/wallet-change-routes.js';
import { walletProblems } from './routes/wallet-problems.js';
import { walletRoutes } from './routes/wallet-routes.js';
import type { WalletService } from './wallet-service.js';

const info = {
  title: 'Wallet service',
  version: '0.1.0',
  description:
    'Wallets on sharded databases. Decimals are exact: strings in answers, strings or numbers in requests. ' +
    'Send an Idempotency-Key with every write, and repeat it with the same key when its outcome is unknown.',
};

/** What the HTTP layer needs besides the application. */
interface WalletApiOptions {
  /** Default: nothing is logged. */
  readonly logger?: HttpLog;
  /** Whether to serve `/docs`, a page for reading and trying the API. Default true. */
  readonly docs?: boolean;
  /** Whether it is served over TLS. Default false. */
  readonly encrypted?: boolean;
  /** Limits how many requests an address and a principal may send. Default: nothing does. */
  readonly rates?: RateLimits;
  /** How many requests a shard has at the same time. Default 512. */
  readonly capacity?: ShardCapacity;
  /** Records writes. Default: nothing does. */
  readonly audit?: AuditLog | undefined;
}

/** The wallet service over HTTP. */
export function walletApi(service: WalletService, options: WalletApiOptions = {}): HttpApi {
  const { logger, docs = true, ...others } = options;
  return new HttpApi({
    ...service,
    ...others,
    name: 'wallet-service',
    info,
    docs,
    problems: walletProblems,
    routes: [
      ...walletRoutes(service),
      ...walletChangeRoutes,
      ...transferRoutes(service),
      ...healthRoutes(service),
      ...(service.relays.length > 0 ? [relayHealthRoute(service)] : []),
    ],
    documents: [jsonDocument('/asyncapi.json', () => publishedEvents(service.namespace))],
    ...(logger && { log: new RequestLog(logger) }),
  });
}

/** Serves it with Hono. */
export function walletApp(
  api: HttpApi,
  options: {
    /** Where requests are measured besides the SDK that is registered with OpenTelemetry's API. Default: nowhere. */
    readonly meterProvider?: MeterProvider | undefined;
    /** The pages of other origins whose scripts may send requests. Default: none. */
    readonly cors?: CorsSettings | undefined;
  } = {},
): Hono<HonoEnv> {
  const { meterProvider, cors } = options;
  const app = new Hono<HonoEnv>();
  app.use(unlessFailed(httpInstrumentationMiddleware()));
  if (meterProvider !== undefined)
    app.use(unlessFailed(httpInstrumentationMiddleware({ disableTracing: true, meterProvider })));
  return honoApp(api, { app, cors });
}

/**
 * Traces and measures requests. An error of the SDK must not change an answer: a deposit that is committed would look as if it had
 * failed.
 */
function unlessFailed(observed: MiddlewareHandler): MiddlewareHandler<HonoEnv> {
  return async (context, next) => {
    let answered: Promise<void> | undefined;
    const answer = (): Promise<void> => (answered ??= next());
    try {
      await observed(context, answer);
    } catch {
      // It may have failed before it has called for the answer, or after.
    }
    await answer();
  };
}
