import { parseExactJson } from './json-number.js';
import { RequestFault } from './request-fault.js';

const bytesMax = 64 * 1024;
const utf8 = new TextDecoder('utf-8', { fatal: true });
const mediaType = /^application\/json[ \t]*(;[ \t]*charset=("utf-8"|utf-8)[ \t]*)?$/i;

/**
 * Reads the JSON body of a request, its numbers exactly as written.
 *
 * @param optional whether no body at all is as good as `{}`
 * @throws RequestFault `unsupported-media-type`, `body-too-large` beyond 64 KiB, `bad-request` when it is not JSON
 */
export async function readJsonBody(request: Request, optional: boolean): Promise<unknown> {
  const sent = hasBody(request);
  if (!sent && optional) return {};
  if (sent && !optional) assertMediaType(request.headers);
  const bytes = await readBytes(request);
  if (bytes.byteLength === 0 && optional) return {};
  assertMediaType(request.headers);
  return parse(bytes);
}

function hasBody({ headers }: Request): boolean {
  return headers.has('transfer-encoding') || Number(headers.get('content-length') ?? 0) > 0;
}

function assertMediaType(headers: Headers): void {
  const coding = headers.get('content-encoding') ?? 'identity';
  if (mediaType.test(headers.get('content-type') ?? '') && coding === 'identity') return;
  throw new RequestFault(
    'unsupported-media-type',
    'Send the body as application/json in UTF-8, not compressed',
  );
}

async function readBytes(request: Request): Promise<Uint8Array> {
  try {
    // The server reads no more than the announced length, so only bodies of unknown length need counting.
    const announced = request.headers.get('content-length');
    if (announced === null) return await readCounted(request.body);
    if (Number(announced) > bytesMax) throw tooLarge();
    return new Uint8Array(await request.arrayBuffer());
  } catch (error) {
    if (error instanceof RequestFault) throw error;
    throw new RequestFault('bad-request', 'The body ended before it was complete', { cause: error });
  }
}

async function readCounted(body: ReadableStream<Uint8Array> | null): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body ?? []) {
    length += chunk.byteLength;
    if (length > bytesMax) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function tooLarge(): RequestFault {
  return new RequestFault('body-too-large', `The body is larger than ${bytesMax} bytes`);
}

function parse(bytes: Uint8Array): unknown {
  try {
    return parseExactJson(utf8.decode(bytes));
  } catch (error) {
    throw new RequestFault('bad-request', 'The body is not JSON in UTF-8', { cause: error });
  }
}
