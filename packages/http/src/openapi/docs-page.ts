import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

import type { ServedDocument } from './served-document.js';

const require = createRequire(import.meta.url);

const assets = {
  'swagger-ui.css': 'text/css; charset=utf-8',
  'swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
  'favicon-32x32.png': 'image/png',
} as const;

// The online validator would send this service's address to a public server.
const startScript = `SwaggerUIBundle({ url: '/openapi.json', dom_id: '#docs', validatorUrl: null, tryItOutEnabled: true });
`;

const contentSecurityPolicy =
  // The page may neither load from nor send to any other host. Swagger UI styles its elements one by one.
  "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** A page at `/docs` for reading and trying the OpenAPI document. Its files come from `swagger-ui-dist` instead of a CDN. */
export function docsPage(title: string): readonly ServedDocument[] {
  return [
    {
      address: '/docs',
      mediaType: 'text/html; charset=UTF-8',
      headers: {
        'content-security-policy': contentSecurityPolicy,
        'cross-origin-opener-policy': 'same-origin',
      },
      read: () => pageOf(title),
    },
    { address: '/docs/start.js', mediaType: 'text/javascript; charset=utf-8', read: () => startScript },
    ...Object.entries(assets).map(([name, mediaType]) => ({
      address: `/docs/${name}`,
      mediaType,
      read: () => asset(name),
    })),
  ];
}

function pageOf(title: string): string {
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>${title.replaceAll('&', '&amp;').replaceAll('<', '&lt;')}</title>
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
}

/** Whether `swagger-ui-dist` is installed, which has the files of the page. */
export function hasDocsPage(): boolean {
  try {
    return assetFolder() !== '';
  } catch {
    return false;
  }
}

async function asset(name: string): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await readFile(join(assetFolder(), name)));
}

function assetFolder(): string {
  return dirname(require.resolve('swagger-ui-dist/package.json'));
}
