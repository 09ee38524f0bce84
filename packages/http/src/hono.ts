import { type Context, Hono } from 'hono';
import { cors } from 'hono/cors';

import { type ServedClient, type ServedRequest, requestIdHeader } from './exchange.js';
import type { HttpApi } from './http-api.js';
import { idempotencyKeyHeader, replayedHeader } from './request/idempotency-key.js';
import type { BodyReader } from './request/request-body.js';

/** What the server that runs the app passes with each request. */
export interface HonoBindings {
  /** Reads the body of the request. */
  readonly body: BodyReader;
  readonly client: ServedClient;
  /** Reads no further request from the client's connection for this long, in milliseconds. Default: does nothing. */
  readonly pause?: (durationMs: number) => void;
}

/** The environment of the app, for middleware of one's own. */
export interface HonoEnv {
  readonly Bindings: HonoBindings;
}

/** The pages of other origins whose scripts may send requests. */
export interface CrossOriginSettings {
  /** Origins such as `https://app.example`, or `*` for all. */
  readonly origins: readonly string[];
  /** Whether browsers may send cookies and the like. */
  readonly credentials: boolean;
}

/** How an app is made. */
export interface HonoAppOptions {
  /** An app whose middleware all requests go through. Default: one without middleware. */
  readonly app?: Hono<HonoEnv>;
  /** Default: scripts of other origins may send no requests. */
  readonly cors?: CrossOriginSettings | undefined;
}

/** Serves an {@link HttpApi} with Hono. */
export function honoApp(api: HttpApi, options: HonoAppOptions = {}): Hono<HonoEnv> {
  const { app = new Hono<HonoEnv>(), cors: allowed } = options;
  if (allowed !== undefined) allowOrigins(app, api, allowed);
  for (const endpoint of api.endpoints) {
    const path = endpoint.address.replaceAll(/\{(\w+)\}/g, ':$1');
    app.on(endpoint.method.toUpperCase(), path, (context) =>
      api.answer(endpoint, servedRequest(context, context.req.param())),
    );
  }
  app.notFound((context) => api.answerUnmatched(servedRequest(context, {})));
  return app;
}

function servedRequest(
  { req, env }: Context<HonoEnv>,
  params: Readonly<Record<string, string>>,
): ServedRequest {
  return { request: req.raw, path: req.path, params, queries: () => req.queries(), ...env };
}

/** How long a browser remembers what it may send, in seconds. */
const preflightSeconds = 600;

function allowOrigins(
  app: Hono<HonoEnv>,
  { endpoints }: HttpApi,
  { origins, credentials }: CrossOriginSettings,
): void {
  const methods = new Set(endpoints.map(({ method }) => method.toUpperCase()));
  const answer = cors({
    origin: origins.includes('*') ? '*' : [...origins],
    credentials,
    allowMethods: ['HEAD', ...methods],
    allowHeaders: [
      'authorization',
      'content-type',
      'if-match',
      'if-none-match',
      'prefer',
      idempotencyKeyHeader,
    ],
    exposeHeaders: ['etag', 'location', 'retry-after', 'www-authenticate', replayedHeader, requestIdHeader],
    maxAge: preflightSeconds,
  });
  app.use(async (context, next) => {
    // Without an origin, OPTIONS asks for the methods, and the answer is the same for all.
    if (context.req.header('origin') === undefined) return next();
    return answer(context, next);
  });
}
