import { hash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

import { publishedEvents } from '../published-events.js';
import { documentTokens } from './document-operation.js';
import type { WalletApp } from './wallet-app-env.js';

const require = createRequire(import.meta.url);

const assets = {
  'swagger-ui.css': 'text/css; charset=utf-8',
  'swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
  'favicon-32x32.png': 'image/png',
} as const;

const page = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Wallet service</title>
    <link rel="icon" type="image/png" href="/docs/favicon-32x32.png">
    <link rel="stylesheet" href="/docs/swagger-ui.css">
  </head>
  <body>
    <div id="docs"></div>
    <script src="/docs/swagger-ui-bundle.js"></script>
    <script src="/docs/start.js"></script>
  </body>
</html>
`;

// The online validator would send this service's address to a public server.
const startScript = `SwaggerUIBundle({ url: '/openapi.json', dom_id: '#docs', validatorUrl: null, tryItOutEnabled: true });
`;

const contentSecurityPolicy =
  // The page may neither load from nor send to any other host. Swagger UI styles its elements one by one.
  "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const about = {
  openapi: '3.1.0',
  info: {
    title: 'Wallet service',
    version: '0.1.0',
    description:
      'Wallets on sharded databases. Decimals are exact: strings in answers, strings or numbers in requests. ' +
      'Send an Idempotency-Key with every write, and repeat it with the same key when its outcome is unknown.',
  },
};

/**
 * Serves the OpenAPI document, built on first use. Call it after all operations are added.
 *
 * @param options.needsTokens whether wallets and transfers need tokens
 */
export function openapiRoute(app: WalletApp, { needsTokens }: { readonly needsTokens: boolean }): void {
  let document: Document | undefined;
  app.get('/openapi.json', (context) => {
    if (document === undefined) {
      const described = app.getOpenAPI31Document(about);
      document = jsonDocument(needsTokens ? documentTokens(described) : described);
    }
    return context.body(document.content, 200, document.headers);
  });
}

/** Serves the AsyncAPI document of what relays publish, built on first use. */
export function asyncapiRoute(app: WalletApp, { namespace }: { readonly namespace: string }): void {
  let document: Document | undefined;
  app.get('/asyncapi.json', (context) => {
    document ??= jsonDocument(publishedEvents(namespace));
    return context.body(document.content, 200, document.headers);
  });
}

/**
 * Serves a page for reading and trying the OpenAPI document. Its files come from an npm package instead of a CDN, and are read
 * once.
 */
export function docsRoutes(app: WalletApp): void {
  app.get('/docs', (context) => {
    context.header('content-security-policy', contentSecurityPolicy);
    context.header('cross-origin-opener-policy', 'same-origin');
    return context.html(page);
  });
  app.get('/docs/start.js', (context) =>
    context.body(startScript, 200, { 'content-type': 'text/javascript; charset=utf-8' }),
  );
  for (const [name, mediaType] of Object.entries(assets)) {
    const read = readOnce(async () => documentOf(await asset(name), mediaType));
    app.get(`/docs/${name}`, async (context) => {
      const { content, headers } = await read();
      return context.body(content, 200, headers);
    });
  }
}

/** What is served unchanged, with its headers. Its `ETag` is computed once: a large file takes milliseconds. */
interface Document<Content extends string | Uint8Array<ArrayBuffer> = string> {
  readonly content: Content;
  readonly headers: { readonly 'content-type': string; readonly etag: string };
}

function documentOf<Content extends string | Uint8Array<ArrayBuffer>>(
  content: Content,
  mediaType: string,
): Document<Content> {
  return { content, headers: { 'content-type': mediaType, etag: `"${hash('sha1', content)}"` } };
}

function jsonDocument(value: unknown): Document {
  return documentOf(JSON.stringify(value), 'application/json');
}

/** Shares one read among all callers, and reads again only after a failure. */
function readOnce<T>(read: () => Promise<T>): () => Promise<T> {
  let content: Promise<T> | undefined;
  return () => {
    content ??= read().catch((error: unknown) => {
      content = undefined;
      throw error;
    });
    return content;
  };
}

async function asset(name: string): Promise<Uint8Array<ArrayBuffer>> {
  const folder = dirname(require.resolve('swagger-ui-dist/package.json'));
  return new Uint8Array(await readFile(join(folder, name)));
}
