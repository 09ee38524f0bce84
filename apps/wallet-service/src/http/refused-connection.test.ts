import { expect, test } from 'vitest';

import { connectionIssue } from './refused-connection.js';

test.each([
  ['HPE_HEADER_OVERFLOW', 'headers-too-large'],
  ['HPE_CHUNK_EXTENSIONS_OVERFLOW', 'body-too-large'],
  ['HPE_INVALID_EOF_STATE', 'bad-request'],
  ['HPE_INVALID_METHOD', 'bad-request'],
  [undefined, 'bad-request'],
])('a connection that fails with %s is refused with %s', (code, expected) => {
  const error = Object.assign(new Error('no'), code && { code });
  expect(connectionIssue(error, { headersBytesMax: 1_024, headersMax: 16 }).code).toBe(expected);
});
