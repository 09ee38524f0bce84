import { type IncomingMessage, STATUS_CODES } from 'node:http';

import { idempotencyKeyHeader } from '../request/idempotency-key.js';
import { InvalidRequestError } from '../request/invalid-request-error.js';

/** The limits for the headers of a request. */
export interface HeaderLimits {
  /** The maximum length of request line and headers together, in bytes. */
  readonly headersBytesMax: number;
  /** The maximum number of headers: each takes a few hundred bytes of memory, however short it is. */
  readonly headersMax: number;
}

/** Translates errors of Node's server. All others mean a malformed request. */
const faultOfCode: Readonly<Record<string, (limits: HeaderLimits) => InvalidRequestError>> = {
  HPE_HEADER_OVERFLOW: headersTooLarge,
  ERR_HTTP_REQUEST_TIMEOUT: () =>
    new InvalidRequestError('request-timeout', 'The request did not arrive in time'),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: () =>
    new InvalidRequestError('body-too-large', 'The extensions of the chunks are too large'),
  HPE_INVALID_EOF_STATE: () =>
    new InvalidRequestError('bad-request', 'The request ended before it was complete'),
};

function headersTooLarge({ headersBytesMax, headersMax }: HeaderLimits): InvalidRequestError {
  return new InvalidRequestError(
    'headers-too-large',
    `The request line and headers may have at most ${headersBytesMax} bytes together, and there may be at most ${headersMax} headers`,
  );
}

/** Translates a connection's error for the client whose request cannot be read. */
export function connectionIssue(error: NodeJS.ErrnoException, limits: HeaderLimits): InvalidRequestError {
  return (
    faultOfCode[error.code ?? '']?.(limits) ??
    new InvalidRequestError('bad-request', 'The request is not valid HTTP/1.1', { cause: error })
  );
}

/** Headers that must occur only once: Node would drop a second one or join it with the first. In lower case. */
const singleHeaders: readonly string[] = ['host', idempotencyKeyHeader.toLowerCase()];

/** Checks a request before its path is read; returns what is wrong with it, if anything. */
export function headerIssue(
  request: Pick<IncomingMessage, 'rawHeaders' | 'headers' | 'httpVersion'>,
): InvalidRequestError | undefined {
  const { rawHeaders, headers, httpVersion } = request;
  if (httpVersion !== '1.1' && httpVersion !== '1.0') {
    return new InvalidRequestError('bad-request', 'The request is not valid HTTP/1.1');
  }
  if (httpVersion === '1.1' && !headers.host) return headerFaultOf('Host', 'is missing');
  // Such a character would change the path that is read from the request.
  if (/[/?#@\\]/.test(headers.host ?? '')) return headerFaultOf('Host', 'is not a valid host name');
  if (isCodingUnknown(headers['transfer-encoding'], httpVersion))
    return headerFaultOf('Transfer-Encoding', 'must be chunked, and is of HTTP/1.1 only');
  const seen = new Set<string>();
  // Names have even indexes. This runs for every request, so most names are skipped by their length.
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

/**
 * Whether a body is transferred in a way that this service does not know, although Node's parser does: in HTTP/1.0, a proxy may take
 * the chunks for the next request, and nothing decodes what is compressed besides.
 *
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-6.1
 */
function isCodingUnknown(coding: string | undefined, httpVersion: string): boolean {
  return coding !== undefined && (httpVersion === '1.0' || coding.toLowerCase() !== 'chunked');
}

function headerFaultOf(name: string, message: string): InvalidRequestError {
  return new InvalidRequestError('bad-request', `${name} ${message}`, {
    faults: [{ pointer: `header/${name}`, message }],
  });
}

/** Formats an answer to input that never became a request; the connection ends after it. */
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
