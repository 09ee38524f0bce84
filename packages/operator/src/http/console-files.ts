import type { HonoEnv } from '@framework/http/hono';
import type { Hono } from 'hono';

/** The files of a page, by their path below it, such as `index.html`. */
export type ConsoleFiles = ReadonlyMap<string, ConsoleFile>;

/** One file of a page. */
export interface ConsoleFile {
  /** Its media type. */
  readonly type: string;
  readonly body: Uint8Array<ArrayBuffer>;
}

/** Only what lies beside the page is executed, and it is shown in no frame. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

const headers = {
  'content-security-policy': policy,
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
};

/** Serves the page under `/console/` to everybody: it contains nothing of the application, and asks for the token itself. */
export function serveConsole(app: Hono<HonoEnv>, read: () => Promise<ConsoleFiles>): void {
  let reading: Promise<ConsoleFiles> | undefined;
  const files = (): Promise<ConsoleFiles> => {
    reading ??= read().catch((error: unknown) => {
      reading = undefined;
      throw error;
    });
    return reading;
  };
  // Relative, so that it is right behind any prefix.
  app.get('/console', () => new Response(null, { status: 308, headers: { location: 'console/' } }));
  app.get('/console/*', async ({ req }, next) => {
    const path = req.path.slice(req.path.indexOf('/console/') + '/console/'.length);
    const file = (await files()).get(path === '' ? 'index.html' : path);
    if (file === undefined) return next();
    return new Response(file.body, { headers: { ...headers, 'content-type': file.type } });
  });
}
