import { hash } from 'node:crypto';

import type { Endpoint } from '../exchange.js';

type Content = string | Uint8Array<ArrayBuffer>;

/** A file or a document that changes only with the program. */
export interface ServedDocument {
  /** Its path, such as `/asyncapi.json`. */
  readonly address: string;
  readonly mediaType: string;
  /** Whether it needs no token. Default true. */
  readonly isPublic?: boolean;
  /** Further headers of the answer. Default: none. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Makes it, once, for its first request, and again after a failure. */
  readonly read: () => Content | Promise<Content>;
}

/** A document of JSON that is made for its first request. */
export function jsonDocument(address: string, make: () => unknown): ServedDocument {
  return { address, mediaType: 'application/json', read: () => JSON.stringify(make()) };
}

/** Serves a document with an `ETag`, so that a client that has it gets 304. */
export function serveDocument(document: ServedDocument): Endpoint {
  const { address, mediaType, headers: own, read, isPublic = true } = document;
  let made: Promise<{ readonly content: Content; readonly etag: string }> | undefined;
  const make = async () => {
    const content = await read();
    return { content, etag: `"${hash('sha1', content)}"` };
  };
  const respond: Endpoint['respond'] = async (exchange, common) => {
    made ??= make().catch((error: unknown) => {
      made = undefined;
      throw error;
    });
    const { content, etag } = await made;
    const headers = { ...common, ...own, etag };
    const known = exchange.headers.get('if-none-match')?.split(',') ?? [];
    if (known.some((tag) => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === etag))
      return new Response(null, { status: 304, headers });
    return new Response(content, { headers: { ...headers, 'content-type': mediaType } });
  };
  return { method: 'get', address, isPublic, respond };
}
