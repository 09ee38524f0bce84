import { describe, expect, test } from 'vitest';

import { answerText, connectionIssue, headerIssue } from './refused-connection.js';

const limits = { headersBytesMax: 1_024, headersMax: 16 };

test.each([
  ['HPE_HEADER_OVERFLOW', 'headers-too-large'],
  ['ERR_HTTP_REQUEST_TIMEOUT', 'request-timeout'],
  ['HPE_CHUNK_EXTENSIONS_OVERFLOW', 'body-too-large'],
  ['HPE_INVALID_EOF_STATE', 'bad-request'],
  ['HPE_INVALID_METHOD', 'bad-request'],
  [undefined, 'bad-request'],
])('a connection that fails with %s is refused with %s', (code, expected) => {
  const error = Object.assign(new Error('no'), code && { code });
  expect(connectionIssue(error, limits).code).toBe(expected);
});

type Head = Parameters<typeof headerIssue>[0];

/** A request as Node has parsed it, with these headers as they were written. */
function head(rawHeaders: readonly string[], own: Partial<Head> = {}): Head {
  const headers: Record<string, string> = {};
  for (let index = 0; index < rawHeaders.length; index += 2)
    headers[rawHeaders[index]?.toLowerCase() ?? ''] ??= rawHeaders[index + 1] ?? '';
  return { httpVersion: '1.1', rawHeaders: [...rawHeaders], headers, ...own };
}

const code = (request: Head): string | undefined => headerIssue(request)?.code;

describe('the headers of a request', () => {
  test.each(['1.1', '1.0'])('are accepted with HTTP/%s', (httpVersion) => {
    expect(code(head(['host', 'x'], { httpVersion }))).toBeUndefined();
  });

  test.each(['0.9', '1.2', '2.0', ''])('are refused with HTTP/%s', (httpVersion) => {
    expect(code(head(['host', 'x'], { httpVersion }))).toBe('bad-request');
  });

  test('need a host since HTTP/1.1', () => {
    expect(code(head([]))).toBe('bad-request');
    expect(code(head(['host', '']))).toBe('bad-request');
    expect(code(head([], { httpVersion: '1.0' }))).toBeUndefined();
  });

  test.each(['a/b', 'a?b', 'a#b', 'user@a', 'a\\b'])('are refused with the host %s', (host) => {
    expect(headerIssue(head(['host', host]))?.faults).toMatchObject([{ pointer: 'header/Host' }]);
  });

  test.each(['Host', 'host', 'HOST', 'Idempotency-Key', 'idempotency-key', 'IDEMPOTENCY-KEY'])(
    'are refused when %s occurs twice, in whatever case, and accepted when it occurs once',
    (name) => {
      const twice = ['Host', 'x', name.toLowerCase(), 'x', name, 'x'];
      expect(headerIssue(head(twice))?.faults).toMatchObject([{ message: 'occurs more than once' }]);
      expect(
        code(head(name.toLowerCase() === 'host' ? [name, 'x'] : ['Host', 'x', name, 'x'])),
      ).toBeUndefined();
    },
  );

  test('may occur twice with other names, even of the same length', () => {
    expect(code(head(['host', 'x', 'Accept', 'a', 'Accept', 'b', 'from', 'a', 'from', 'b']))).toBeUndefined();
  });

  test.each([
    ['1.1', 'chunked', undefined],
    ['1.1', 'Chunked', undefined],
    ['1.1', 'gzip, chunked', 'bad-request'],
    ['1.1', 'identity', 'bad-request'],
    ['1.0', 'chunked', 'bad-request'],
  ])('with HTTP/%s and the transfer coding %s are refused with: %s', (httpVersion, coding, expected) => {
    expect(code(head(['host', 'x', 'transfer-encoding', coding], { httpVersion }))).toBe(expected);
  });
});

test('an answer outside of requests says the length of its body in bytes, and ends the connection', async () => {
  const body = '{"detail":"é€👍"}';
  const response = new Response(body, { status: 431, headers: { 'x-one': '1' } });
  const text = await answerText(response);
  const [lines = '', sent] = text.split('\r\n\r\n');
  expect([sent, Buffer.byteLength(body)]).toEqual([body, 22]);
  expect(lines.split('\r\n')).toEqual([
    'HTTP/1.1 431 Request Header Fields Too Large',
    'connection: close',
    'content-type: text/plain;charset=UTF-8',
    'x-one: 1',
    'content-length: 22',
    expect.stringMatching(/^date: .* GMT$/),
  ]);
});
