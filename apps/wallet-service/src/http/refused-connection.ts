import { type IncomingMessage, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { idempotencyKeyHeader } from './request/idempotency-key.js';
import { RequestFault } from './request/request-fault.js';

/** What Node's parser says of a request that it cannot read, as a fault; everything else is a malformed request. */
const faultOfCode: Readonly<Record<string, () => RequestFault>> = {
  HPE_HEADER_OVERFLOW: () =>
    new RequestFault('headers-too-large', 'Address and headers have at most 16 KiB together'),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: () =>
    new RequestFault('body-too-large', 'The extensions of the chunks are too large'),
  ERR_HTTP_REQUEST_TIMEOUT: () => new RequestFault('request-timeout', 'The request did not arrive in time'),
};

/** Says what an error of a connection is to the client who sent what cannot be read. */
export function connectionFault(error: NodeJS.ErrnoException): RequestFault {
  return (
    faultOfCode[error.code ?? '']?.() ??
    new RequestFault('bad-request', 'The request is not one of HTTP/1.1', { cause: error })
  );
}

/** Headers of which a second one would be dropped, or taken for a part of the first; in lower case. */
const singleHeaders: readonly string[] = ['host', idempotencyKeyHeader.toLowerCase()];

/** What is wrong with a request before its path is looked at, if anything is. */
export function headerFault({ rawHeaders }: IncomingMessage): RequestFault | undefined {
  const seen = new Set<string>();
  // Names stand at even places. Looked at for every request, so most are passed over by their length.
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    const single = singleHeaders.find(
      ({ length }, place) => length === name.length && singleHeaders[place] === name.toLowerCase(),
    );
    if (single === undefined) continue;
    if (seen.has(single)) return repeatedHeader(name);
    seen.add(single);
  }
  return undefined;
}

function repeatedHeader(name: string): RequestFault {
  const message = 'stands there more than once';
  return new RequestFault('bad-request', `${name} ${message}`, {
    faults: [{ pointer: `header/${name}`, message }],
  });
}

/** Writes an answer to a connection of which no request can be read, and ends it. */
export async function answerAndEnd(socket: Duplex, response: Response): Promise<void> {
  const body = await response.text();
  if (!socket.writable) return void socket.destroy();
  const head = [
    `HTTP/1.1 ${response.status} ${STATUS_CODES[response.status] ?? ''}`,
    ...[...response.headers].map(([name, value]) => `${name}: ${value}`),
    `content-length: ${Buffer.byteLength(body)}`,
    `date: ${new Date().toUTCString()}`,
    ...(response.headers.has('connection') ? [] : ['connection: close']),
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
}
