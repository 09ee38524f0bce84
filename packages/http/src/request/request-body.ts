import type { IncomingMessage } from 'node:http';

import { InvalidRequestError } from './invalid-request-error.js';
import { parseExactJson } from './exact-json.js';

/** Reads the body of a request. */
export interface BodyReader {
  /** Whether the headers announce a body. */
  readonly isAnnounced: boolean;
  /**
   * Reads the whole body, once.
   *
   * @throws InvalidRequestError `body-too-large` beyond the limit, `bad-request` when the connection ends before the body does
   */
  read(): Promise<Uint8Array>;
}

/** The body of a request of Node's server. It is read only when it is needed, and never beyond its limit. */
export class RequestBody implements BodyReader {
  readonly #request: IncomingMessage;
  readonly #bytesMax: number;
  readonly #onRead: () => void;
  /** The length according to the headers, in bytes; `undefined` for a chunked body. */
  readonly #length: number | undefined;
  #fault: InvalidRequestError | undefined;
  #reject: ((fault: InvalidRequestError) => void) | undefined;

  /** @param onRead called when the body is requested; the client may not send the body until the service asks for it */
  constructor(request: IncomingMessage, bytesMax: number, onRead: () => void = () => undefined) {
    const { 'content-length': length, 'transfer-encoding': coding } = request.headers;
    this.#request = request;
    this.#bytesMax = bytesMax;
    this.#onRead = onRead;
    this.#length = coding === undefined ? Number(length ?? 0) : undefined;
  }

  /** Whether the headers announce a body. */
  get isAnnounced(): boolean {
    return this.#length !== 0;
  }

  /** Whether the headers announce a body that exceeds the limit. */
  get isTooLarge(): boolean {
    return this.#length !== undefined && this.#length > this.#bytesMax;
  }

  /** Makes the current or next read fail, because the rest of the body will not arrive. */
  fail(fault: InvalidRequestError): void {
    this.#fault ??= fault;
    this.#reject?.(fault);
  }

  /**
   * Reads the whole body, once.
   *
   * @throws InvalidRequestError `body-too-large` as soon as more bytes than the limit are announced or have arrived,
   * `bad-request` when the connection ends before the body does, and any fault passed to {@link fail}
   */
  async read(): Promise<Buffer> {
    if (this.#fault !== undefined) throw this.#fault;
    if (this.isTooLarge) throw tooLarge(this.#bytesMax);
    // A destroyed request emits no more events.
    if (this.#request.destroyed) throw incomplete(undefined);
    this.#onRead();
    const request = this.#request;
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    this.#reject = reject;
    // Copied, because a chunk takes some hundred bytes of memory, however short it is.
    let bytes: Buffer = Buffer.alloc(0);
    let length = 0;
    const onData = (chunk: Buffer): void => {
      const start = length;
      length += chunk.length;
      if (length > this.#bytesMax) return reject(tooLarge(this.#bytesMax));
      if (length > bytes.length)
        bytes = Buffer.concat([bytes], Math.max(length, Math.min(2 * bytes.length, this.#bytesMax)));
      chunk.copy(bytes, start);
    };
    const onEnd = (): void => {
      // Otherwise the event that follows would make an error, with its stack, for every request.
      request.off('close', onError);
      resolve(bytes.subarray(0, length));
    };
    const onError = (cause?: Error): void => reject(incomplete(cause));
    request.on('data', onData).on('end', onEnd).on('error', onError).on('close', onError);
    try {
      return await promise;
    } finally {
      this.#reject = undefined;
      request.off('data', onData).off('end', onEnd).off('error', onError).off('close', onError);
    }
  }
}

/** The error of a body beyond its limit. */
export function tooLarge(bytesMax: number): InvalidRequestError {
  return new InvalidRequestError('body-too-large', `The body is larger than ${bytesMax} bytes`);
}

function incomplete(cause: unknown): InvalidRequestError {
  return new InvalidRequestError('bad-request', 'The body ended before it was complete', { cause });
}

/** The body of a web request, which is never read beyond its limit. */
export function webBody({ headers, body }: Request, bytesMax: number): BodyReader {
  const length = headers.get('content-length');
  return {
    isAnnounced: length === null ? body !== null : length !== '0',
    read: async () => {
      if (Number(length ?? 0) > bytesMax) throw tooLarge(bytesMax);
      const chunks: Uint8Array[] = [];
      let read = 0;
      try {
        for await (const chunk of body ?? []) {
          read += chunk.length;
          if (read > bytesMax) throw tooLarge(bytesMax);
          chunks.push(chunk);
        }
      } catch (error) {
        if (error instanceof InvalidRequestError) throw error;
        throw incomplete(error);
      }
      return Buffer.concat(chunks);
    },
  };
}

const utf8 = new TextDecoder('utf-8', { fatal: true });
const mediaType = /^application\/json[ \t]*(;[ \t]*charset=("utf-8"|utf-8)[ \t]*)?$/i;

/**
 * Reads the JSON body of a request, and keeps its numbers exactly as written.
 *
 * @param optional whether a missing body means the same as `{}`
 * @throws InvalidRequestError `unsupported-media-type`, `body-too-large` beyond its limit, `bad-request` when it is not
 * JSON
 */
export async function readJsonBody(body: BodyReader, headers: Headers, optional: boolean): Promise<unknown> {
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
  throw new InvalidRequestError(
    'unsupported-media-type',
    'Send the body as application/json in UTF-8 without compression',
  );
}

function parse(bytes: Uint8Array): unknown {
  try {
    return parseExactJson(utf8.decode(bytes));
  } catch (error) {
    throw new InvalidRequestError('bad-request', 'The body is not valid JSON in UTF-8', { cause: error });
  }
}
