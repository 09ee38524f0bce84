import { parseExactJson } from './json-number.js';
import type { RequestBody } from './request-body.js';
import { RequestFault } from './request-fault.js';

const utf8 = new TextDecoder('utf-8', { fatal: true });
const mediaType = /^application\/json[ \t]*(;[ \t]*charset=("utf-8"|utf-8)[ \t]*)?$/i;

/**
 * Reads the JSON body of a request, its numbers exactly as written.
 *
 * @param optional whether no body at all is as good as `{}`
 * @throws RequestFault `unsupported-media-type`, `body-too-large` beyond 64 KiB, `bad-request` when it is not JSON
 */
export async function readJsonBody(body: RequestBody, headers: Headers, optional: boolean): Promise<unknown> {
  const sent = body.isAnnounced;
  if (!sent && optional) return {};
  if (sent && !optional) assertMediaType(headers);
  const bytes = await body.read();
  if (bytes.byteLength === 0 && optional) return {};
  assertMediaType(headers);
  return parse(bytes);
}

function assertMediaType(headers: Headers): void {
  const coding = headers.get('content-encoding') ?? 'identity';
  if (mediaType.test(headers.get('content-type') ?? '') && coding.toLowerCase() === 'identity') return;
  throw new RequestFault(
    'unsupported-media-type',
    'Send the body as application/json in UTF-8, not compressed',
  );
}

function parse(bytes: Uint8Array): unknown {
  try {
    return parseExactJson(utf8.decode(bytes));
  } catch (error) {
    throw new RequestFault('bad-request', 'The body is not JSON in UTF-8', { cause: error });
  }
}
