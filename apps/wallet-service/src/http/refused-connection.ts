import { type IncomingMessage, STATUS_CODES } from 'node:http';

import { InvalidRequestError } from './parse-shape.js';
import { idempotencyKeyHeader } from './request-fields.js';

/** How long address and headers may be together. */
export const headersBytesMax: number = 16 * 1024;
/** How many headers there may be: each takes some hundred bytes of memory, however small it is. */
export const headersCountMax = 1_000;

/** What Node's parser says of a request that it cannot read, as a fault; everything else is a malformed request. */
const faultOfCode: Readonly<Record<string, () => InvalidRequestError>> = {
  HPE_HEADER_OVERFLOW: headersTooLarge,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: () =>
    new InvalidRequestError('body-too-large', 'The extensions of the chunks are too large'),
  HPE_INVALID_EOF_STATE: () =>
    new InvalidRequestError('bad-request', 'The request ended before it was complete'),
};

/** Why a request is refused whose address and headers are too long, or do not end. */
export function headersTooLarge(): InvalidRequestError {
  return new InvalidRequestError(
    'headers-too-large',
    `Address and headers have at most 16 KiB together, and there are at most ${headersCountMax} headers`,
  );
}

/** Why a request is refused that the client takes too long to send. */
export function requestTimedOut(): InvalidRequestError {
  return new InvalidRequestError('request-timeout', 'The request did not arrive in time');
}

/** Translates an error of a connection for the client whose request cannot be read. */
export function connectionIssue(error: NodeJS.ErrnoException): InvalidRequestError {
  return (
    faultOfCode[error.code ?? '']?.() ??
    new InvalidRequestError('bad-request', 'The request is not one of HTTP/1.1', { cause: error })
  );
}

/** Headers of which a second one would be dropped, or taken for a part of the first; in lower case. */
const singleHeaders: readonly string[] = ['host', idempotencyKeyHeader.toLowerCase()];

/** What is wrong with a request before its path is looked at, if anything is. */
export function headerIssue(
  request: Pick<IncomingMessage, 'method' | 'url' | 'rawHeaders' | 'headers' | 'httpVersion'>,
): InvalidRequestError | undefined {
  const { method = '', url = '', rawHeaders, headers, httpVersion } = request;
  // Node's parser does not count what stands between names and values, and counts to more than the limit.
  const texts = rawHeaders.reduce((length, text) => length + text.length, method.length + url.length);
  if (texts + separatorBytes(rawHeaders.length / 2) > headersBytesMax) return headersTooLarge();
  if (httpVersion !== '1.1' && httpVersion !== '1.0') {
    return new InvalidRequestError('bad-request', 'The request is not one of HTTP/1.1');
  }
  if (httpVersion === '1.1' && !headers.host) return headerFaultOf('Host', 'is missing');
  // With it, the path would be another one than the client's.
  if (/[/?#@\\]/.test(headers.host ?? '')) return headerFaultOf('Host', 'is not a host');
  const seen = new Set<string>();
  // Names stand at even places. Looked at for every request, so most are passed over by their length.
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    const single = singleHeaders.find(
      ({ length }, place) => length === name.length && singleHeaders[place] === name.toLowerCase(),
    );
    if (single === undefined) continue;
    if (seen.has(single)) return headerFaultOf(name, 'occurs more than once');
    seen.add(single);
  }
  return undefined;
}

/** What stands on the wire besides method, address, names and values: at least so much. */
function separatorBytes(headerCount: number): number {
  return '  HTTP/1.1\r\n'.length + headerCount * ': \r\n'.length + '\r\n'.length;
}

function headerFaultOf(name: string, message: string): InvalidRequestError {
  return new InvalidRequestError('bad-request', `${name} ${message}`, {
    faults: [{ pointer: `header/${name}`, message }],
  });
}

/** Writes out an answer to what is no request, after which the connection ends. */
export async function answerText(response: Response): Promise<string> {
  const body = await response.text();
  response.headers.set('connection', 'close');
  const head = [
    `HTTP/1.1 ${response.status} ${STATUS_CODES[response.status] ?? ''}`,
    ...[...response.headers].map(([name, value]) => `${name}: ${value}`),
    `content-length: ${Buffer.byteLength(body)}`,
    `date: ${new Date().toUTCString()}`,
  ];
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}
