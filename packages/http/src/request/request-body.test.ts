import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';

import { describe, expect, test } from 'vitest';

import { InvalidRequestError } from './invalid-request-error.js';
import { RequestBody, readJsonBody } from './request-body.js';

const bytesMax = 12;

/** A request with a body in parts, and with these headers besides its length. */
function requestWith(
  parts: readonly (string | Buffer)[],
  headers: Readonly<Record<string, string>> = {},
): IncomingMessage {
  const stream = Readable.from(parts.map((part) => Buffer.from(part)));
  return Object.assign(stream, { headers }) as unknown as IncomingMessage;
}

/** A body whose length the headers say, in bytes. */
function bodyOf(text: string, onRead?: () => void): RequestBody {
  const headers = { 'content-length': String(Buffer.byteLength(text)) };
  return new RequestBody(requestWith([text], headers), bytesMax, onRead);
}

const chunked = { 'transfer-encoding': 'chunked' };

describe('a body', () => {
  test.each([
    ['one byte below the limit', 'x'.repeat(11)],
    ['of the limit', 'x'.repeat(12)],
    ['of the limit, in characters of two, three and four bytes', 'éé€👍x'],
  ])('%s is read, whether or not its length is known', async (_size, text) => {
    expect((await bodyOf(text).read()).toString()).toBe(text);
    const bytes = Array.from(Buffer.from(text), (byte) => Buffer.of(byte));
    const inParts = new RequestBody(requestWith(bytes, chunked), bytesMax);
    expect((await inParts.read()).toString()).toBe(text);
  });

  test.each([
    ['one byte beyond the limit', 'x'.repeat(13)],
    ['of fewer characters than the limit, and of more bytes', '€€€€x'],
  ])('%s is refused, whether or not its length is known', async (_size, text) => {
    const refused = { code: 'body-too-large' };
    expect(bodyOf(text).isTooLarge).toBe(true);
    await expect(bodyOf(text).read()).rejects.toMatchObject(refused);
    const inParts = new RequestBody(requestWith(Array.from(text), chunked), bytesMax);
    expect(inParts.isTooLarge).toBe(false);
    await expect(inParts.read()).rejects.toMatchObject(refused);
  });

  test('that ends before it is complete is refused', async () => {
    const request = requestWith(['x'], { 'content-length': '5' });
    const reading = new RequestBody(request, bytesMax).read();
    request.destroy();
    await expect(reading).rejects.toMatchObject({ code: 'bad-request' });
    await expect(new RequestBody(request, bytesMax).read()).rejects.toMatchObject({ code: 'bad-request' });
  });

  test('that fails is refused with the first reason, during the read or before it', async () => {
    const faults = [1, 2].map((number) => new InvalidRequestError('request-timeout', `reason ${number}`));
    const [running, next] = [new RequestBody(new Waiting() as never, bytesMax), bodyOf('x')];
    const reading = running.read();
    for (const fault of faults) for (const body of [running, next]) body.fail(fault);
    await expect(reading).rejects.toBe(faults[0]);
    await expect(next.read()).rejects.toBe(faults[0]);
  });

  test('is requested once from a client that waits for that, unless its length is refused', async () => {
    let askedCount = 0;
    await bodyOf('x', () => askedCount++).read();
    expect(askedCount).toBe(1);
    await bodyOf('x'.repeat(13), () => askedCount++)
      .read()
      .catch(() => undefined);
    expect(askedCount).toBe(1);
  });

  test.each([
    ['read', 'x', undefined],
    ['too large', 'x'.repeat(20), undefined],
    ['failed', 'x', new InvalidRequestError('request-timeout', 'late')],
  ])('leaves no listener on its request once it is %s', async (_how, text, fault) => {
    const request = requestWith([text], chunked);
    const count = (): readonly number[] =>
      ['data', 'end', 'error', 'close'].map((event) => request.listenerCount(event));
    const before = count();
    const body = new RequestBody(request, bytesMax);
    const reading = body.read();
    expect(count()).not.toEqual(before);
    if (fault !== undefined) body.fail(fault);
    await reading.catch(() => undefined);
    expect(count()).toEqual(before);
  });
});

/** A request whose body does not arrive. */
class Waiting extends Readable {
  readonly headers = chunked;

  override _read(): void {
    // Nothing arrives.
  }
}

/** Reads a body of JSON that must not be left out. */
function read(text: string | Buffer, headers: Readonly<Record<string, string>>): Promise<unknown> {
  return readJsonBody(new RequestBody(requestWith([text], chunked), 1_000), new Headers(headers), false);
}

describe('a body of JSON', () => {
  test.each([
    'application/json',
    'Application/JSON',
    'application/json;charset=utf-8',
    'application/json ; charset="UTF-8" ',
  ])('is read as %j', async (type) => {
    expect(await read('{"a":"é€👍"}', { 'content-type': type })).toEqual({ a: 'é€👍' });
  });

  test.each([
    '',
    'text/plain',
    'application/jsonx',
    'application/problem+json',
    'application/json; charset=latin1',
    'application/json; charset=utf-8; x=y',
    'multipart/form-data',
  ])('is refused as %j', async (type) => {
    await expect(read('{}', { 'content-type': type })).rejects.toMatchObject({
      code: 'unsupported-media-type',
    });
  });

  test.each(['gzip', 'br', 'deflate', 'identity, gzip'])('is refused with the coding %s', async (coding) => {
    const headers = { 'content-type': 'application/json', 'content-encoding': coding };
    await expect(read('{}', headers)).rejects.toMatchObject({ code: 'unsupported-media-type' });
    expect(await read('{}', { ...headers, 'content-encoding': 'IDENTITY' })).toEqual({});
  });

  test.each([
    ['half of a character', Buffer.from([0x22, 0xe2, 0x82, 0x22])],
    ['a byte of Latin-1', Buffer.from('"é"', 'latin1')],
    ['half of a surrogate pair', Buffer.from([0x22, 0xed, 0xa0, 0xbd, 0x22])],
    ['nothing', ''],
    ['an incomplete text', '{"a":'],
  ])('is refused with %s', async (_what, text) => {
    await expect(read(text, { 'content-type': 'application/json' })).rejects.toMatchObject({
      code: 'bad-request',
    });
  });

  test('may be left out only where it is optional', async () => {
    const [none, empty] = [requestWith([]), requestWith([], chunked)].map(
      (request) => () => new RequestBody(request, 1_000),
    ) as [() => RequestBody, () => RequestBody];
    expect(await readJsonBody(none(), new Headers(), true)).toEqual({});
    expect(await readJsonBody(empty(), new Headers(), true)).toEqual({});
    for (const body of [none(), empty()])
      await expect(readJsonBody(body, new Headers(), false)).rejects.toMatchObject({
        code: 'unsupported-media-type',
      });
  });
});
