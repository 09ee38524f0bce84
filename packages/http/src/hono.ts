import { type Context, Hono } from 'hono';
import { cors } from 'hono/cors';

import { type ServedClient, type ServedRequest, requestIdHeader } from './exchange.js';
import type { HttpApi } from './http-api.js';
import { idempotencyKeyHeader, replayedHeader } from './request/idempotency-key.js';
import { type BodyReader, webBody } from './request/request-body.js';
import type { CorsSettings } from './security/http-settings.js';

/** What the server that runs the app passes with each request, if it passes anything. */
export interface HonoBindings {
  /** Reads the body of the request. Default: the request's own, up to the limit of the app. */
  readonly body?: BodyReader;
  /** Default: that at the other end of the connection, if `@hono/node-server` runs the app. */
  readonly client?: ServedClient;
  /** What `@hono/node-server` passes. */
  readonly incoming?: { readonly socket: { readonly remoteAddress?: string | undefined } };
  readonly outgoing?: { readonly destroy: () => unknown };
  /** Serves no further request of the client's connection for this long, in milliseconds. Default: does nothing. */
  readonly pause?: (durationMs: number) => void;
}

/** The environment of the app, for middleware of one's own. */
export interface HonoEnv {
  readonly Bindings: HonoBindings;
}

const bodyBytesMaxDefault = 65_536;

/** How an app is made. */
export interface HonoAppOptions {
  /** An app whose middleware all requests go through. Default: one without middleware. */
  readonly app?: Hono<HonoEnv>;
  /** The maximum number of bytes in a body that the server does not read itself. Default 65,536. */
  readonly bodyBytesMax?: number;
  /** The pages of other origins whose scripts may send requests. Default: none. */
  readonly cors?: CorsSettings | undefined;
}

/** Serves an {@link HttpApi} with Hono. */
export function honoApp(api: HttpApi, options: HonoAppOptions = {}): Hono<HonoEnv> {
  const { app = new Hono<HonoEnv>(), cors: allowed, bodyBytesMax = bodyBytesMaxDefault } = options;
  const served = ({ req, env }: Context<HonoEnv>, params: ServedRequest['params']): ServedRequest => {
    // Without a server, as in tests, there is none.
    const { body, client, incoming, outgoing, pause } = (env as HonoBindings | undefined) ?? {};
    return {
      method: req.method,
      headers: req.raw.headers,
      path: req.path,
      params,
      queries: () => req.queries(),
      body: body ?? webBody(req.raw, bodyBytesMax),
      signal: () => req.raw.signal,
      client: client ?? { address: incoming?.socket.remoteAddress ?? 'unknown' },
      ...(pause && { pause }),
      ...(outgoing && { breakOff: () => void outgoing.destroy() }),
    };
  };
  if (allowed !== undefined) allowOrigins(app, api, allowed);
  for (const endpoint of api.endpoints) {
    const path = endpoint.address.replaceAll(/\{(\w+)\}/g, ':$1');
    app.on(endpoint.method.toUpperCase(), path, async (context) => {
      const answer = await api.answer(endpoint, served(context, context.req.param()));
      if (context.req.method !== 'HEAD') return answer;
      // Hono would leave it open.
      answer.body?.cancel().catch(() => undefined);
      return new Response(null, answer);
    });
  }
  app.notFound((context) => api.answerUnmatched(served(context, {})));
  return app;
}

/** How long a browser remembers what it may send, in seconds. */
const preflightSeconds = 600;

function allowOrigins(
  app: Hono<HonoEnv>,
  { endpoints }: HttpApi,
  { origins, credentials }: CorsSettings,
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
