import { cors } from 'hono/cors';
import { secureHeaders } from 'hono/secure-headers';

import { replayedHeader } from './document-operation.js';
import type { CorsSettings } from './http-settings.js';
import { idempotencyKeyHeader } from './request-fields.js';
import { type WalletApp, requestIdHeader } from './wallet-app-env.js';

/** How long a browser uses HTTPS only, in seconds: a year, as the lists of browsers ask for. */
const httpsOnlySeconds = 31_536_000;
/** How long a browser remembers what it may send, in seconds. */
const preflightSeconds = 600;

/** The paths whose answers are about money. */
const moneyPaths = ['/wallets/*', '/transfers/*'];

/**
 * Sets the headers that tell browsers and caches how to treat answers. Call it before operations are added.
 *
 * @param options.encrypted whether the service speaks TLS; only then are browsers told to use nothing else
 * @param options.cors the pages of other origins whose scripts may send requests. Default: none
 */
export function securityHeaders(
  app: WalletApp,
  { encrypted, cors: allowed }: { readonly encrypted: boolean; readonly cors?: CorsSettings | undefined },
): void {
  app.use(
    secureHeaders({
      // Answers are data; a page sets its own policy.
      contentSecurityPolicy: { defaultSrc: ["'none'"], baseUri: ["'none'"], frameAncestors: ["'none'"] },
      overwrite: false,
      strictTransportSecurity: encrypted && `max-age=${httpsOnlySeconds}`,
      xFrameOptions: 'DENY',
      // Each header costs a request about a microsecond. These concern windows, or browsers and plugins of the past.
      crossOriginOpenerPolicy: false,
      originAgentCluster: false,
      xDnsPrefetchControl: false,
      xDownloadOptions: false,
      xPermittedCrossDomainPolicies: false,
      xXssProtection: false,
    }),
  );
  if (allowed !== undefined) allowOrigins(app, allowed);
  for (const path of moneyPaths) {
    app.use(path, async (context, next) => {
      await next();
      const { headers } = context.res;
      if (!headers.has('cache-control')) headers.set('cache-control', 'no-store');
    });
  }
}

function allowOrigins(app: WalletApp, { origins, credentials }: CorsSettings): void {
  const answer = cors({
    origin: origins.includes('*') ? '*' : [...origins],
    credentials,
    allowMethods: ['GET', 'HEAD', 'POST'],
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
