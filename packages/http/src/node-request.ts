import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';

import type { ServedRequest } from './exchange.js';
import { type BodyReader, RequestBody, tooLarge } from './request/request-body.js';
import { headerIssue } from './server/refused-connection.js';

/** The maximum number of bytes in a body. */
const bodyBytesMaxDefault = 65_536;

/** What a binding has found out about a request of Node's server. */
export interface NodeRequestParts {
  /** The path with its query, without the prefix at which the API is served. */
  readonly url: string;
  readonly params: Readonly<Record<string, string>>;
  readonly address: string;
  readonly response: ServerResponse;
  /** The body, if the framework has read it already. */
  readonly bytes?: Uint8Array | undefined;
  readonly bodyBytesMax?: number | undefined;
}

/** Passes a request of Node's server on. */
export function nodeRequest(incoming: IncomingMessage, parts: NodeRequestParts): ServedRequest {
  const { url, params, address, response, bytes, bodyBytesMax = bodyBytesMaxDefault } = parts;
  const [path = '', ...query] = url.split('?');
  return {
    method: incoming.method ?? '',
    path,
    headers: headersOf(incoming),
    params,
    queries: () => queriesOf(query.join('?')),
    body: bytes === undefined ? new RequestBody(incoming, bodyBytesMax) : readBody(bytes, bodyBytesMax),
    client: { address },
    fault: incoming.httpVersion.startsWith('1.') ? headerIssue(incoming) : undefined,
    signal: () => signalOf(response),
  };
}

function headersOf({ headers: received, headersDistinct }: IncomingMessage): Headers {
  const headers = new Headers();
  // HTTP/2 has method and path among its headers, with names that begin with a colon.
  for (const [name, value = ''] of Object.entries(received))
    if (!name.startsWith(':')) headers.set(name, String(value));
  // Node takes the first of two, where a proxy may have taken the second. A request that is injected has none of these.
  const distinct: IncomingMessage['headersDistinct'] | undefined = headersDistinct;
  const { authorization = [] } = distinct ?? {};
  if (authorization.length > 1) headers.set('authorization', authorization.join(', '));
  return headers;
}

function queriesOf(text: string): Readonly<Record<string, readonly string[]>> {
  const params = new URLSearchParams(text);
  return Object.fromEntries([...params.keys()].map((name) => [name, params.getAll(name)]));
}

function readBody(bytes: Uint8Array, bytesMax: number): BodyReader {
  return {
    isAnnounced: bytes.length > 0,
    read: async () => {
      if (bytes.length > bytesMax) throw tooLarge(bytesMax);
      return bytes;
    },
  };
}

/** A signal that is aborted when the connection ends before the answer does. */
function signalOf(response: ServerResponse): AbortSignal {
  const left = new AbortController();
  const close = (): void => {
    if (!response.writableFinished) left.abort();
  };
  if (response.closed || response.destroyed) close();
  else response.once('close', close);
  return left.signal;
}

/** The part of Fastify's reply that an answer needs. */
export interface AnswerReply {
  code(status: number): unknown;
  headers(headers: Readonly<Record<string, string | string[]>>): unknown;
  send(body?: unknown): unknown;
}

/** Sends an answer with Fastify, whose routes for HEAD accept streams only. */
export function sendReply(answer: Response, reply: AnswerReply): unknown {
  reply.code(answer.status);
  const { 'set-cookie': _first, ...headers } = Object.fromEntries(answer.headers);
  const cookies = answer.headers.getSetCookie();
  reply.headers({ ...headers, ...(cookies.length > 0 && { 'set-cookie': cookies }) });
  return reply.send(answer.body ?? undefined);
}

/** Sends an answer with Node's server. */
export async function sendResponse(answer: Response, response: ServerResponse): Promise<void> {
  response.statusCode = answer.status;
  response.setHeaders(answer.headers);
  if (response.req.method === 'HEAD') answer.body?.cancel().catch(() => undefined);
  if (answer.body === null || response.req.method === 'HEAD') response.end();
  // A client that leaves ends the stream, which is all that there is to do.
  else await pipeline(answer.body, response).catch(() => undefined);
}

/** The path of an address with its parameters, as a client writes it. */
export function addressWith(address: string, params: Readonly<Record<string, string>>): string {
  return address.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? ''));
}

/** The query of a URL with its question mark, if it has one. */
export function queryOf(url: string): string {
  const at = url.indexOf('?');
  return at === -1 ? '' : url.slice(at);
}

/** The status that a library has given an error: `getStatus()` of an exception of NestJS, or the `statusCode` of Fastify and Express. */
export function statusOf(error: unknown): number | undefined {
  if (!(error instanceof Error)) return undefined;
  const { getStatus, statusCode } = error as { readonly getStatus?: unknown; readonly statusCode?: unknown };
  const status: unknown = typeof getStatus === 'function' ? Reflect.apply(getStatus, error, []) : statusCode;
  return typeof status === 'number' && status >= 400 && status <= 599 ? status : undefined;
}
