// oxlint-disable-next-line no-restricted-imports -- shows a secret as the console does
import { inspect } from 'node:util';
import { expect, test } from 'vitest';

import { Secret } from './database-url.js';

test('a secret is shown as asterisks in strings, in JSON and when it is inspected', () => {
  const secret = new Secret('s3cret');
  expect([String(secret), JSON.stringify({ secret }), inspect({ secret })]).toEqual([
    '******',
    '{"secret":"******"}',
    '{ secret: ****** }',
  ]);
  expect(secret.reveal()).toBe('s3cret');
});
