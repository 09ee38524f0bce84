import { describe, expect, test } from 'vitest';

import { ClientAddresses, addressRange } from './client-address.js';
import { parseHttpSettings } from './http-settings.js';

const { limits, trustedProxies } = parseHttpSettings({
  trustedProxies: ['10.0.0.0/8', 'fd00::1'],
  limits: { unlimitedAddresses: ['192.0.2.0/24'] },
});
const clients = new ClientAddresses({ trustedProxies, unlimited: limits.unlimitedAddresses });

test.each([
  ['203.0.113.9', '203.0.113.9'],
  ['::ffff:203.0.113.9', '203.0.113.9'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::', '2001:db8:1:2::/64'],
  [undefined, 'unknown'],
])('the client at %s is counted as %s', (text, address) => {
  expect(clients.atAddress(text)).toEqual({ address, isLimited: true, isProxy: false });
});

test('the limits do not apply to unlimited addresses and trusted proxies', () => {
  expect(clients.atAddress('192.0.2.255')).toMatchObject({ isLimited: false, isProxy: false });
  expect(clients.atAddress('::ffff:10.1.2.3')).toMatchObject({ isLimited: false, isProxy: true });
  expect(clients.atAddress('fd00::1')).toMatchObject({ isLimited: false, isProxy: true });
  expect(clients.atAddress('fd00::2')).toMatchObject({ isLimited: true, isProxy: false });
});

describe('the client behind a trusted proxy', () => {
  test.each([
    ['the last address', '203.0.113.9', '203.0.113.9'],
    [
      'the last address, whatever the client wrote before it',
      '192.0.2.1, 10.0.0.9, 203.0.113.9',
      '203.0.113.9',
    ],
    [
      'the last address before other trusted proxies',
      '192.0.2.1, 203.0.113.9,10.0.0.2 , fd00::1',
      '203.0.113.9',
    ],
    ['the last address without its port', '192.0.2.1:80, 203.0.113.9:4711', '203.0.113.9'],
    ['the last address without its brackets', '[2001:db8::1]:4711', '2001:db8:0:0::/64'],
    ['the last address without its brackets and a port', '[2001:db8::1]', '2001:db8:0:0::/64'],
    ['the proxy if the last entry is no address', '203.0.113.9, somebody', '10.0.0.1'],
    ['the proxy if there are only proxies', '10.0.0.2', '10.0.0.1'],
    ['the proxy without the header', undefined, '10.0.0.1'],
  ])('is %s', (_what, forwarded, address) => {
    const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded };
    expect(clients.behind(clients.atAddress('10.0.0.1'), { headers })).toMatchObject({ address });
  });
});

test.each([
  ['has sent a request of its own', {}, false],
  ['says nothing of the client', { 'x-forwarded-for': '203.0.113.9, unknown' }, true],
])('a trusted proxy that %s is limited: %#', (_what, headers, isLimited) => {
  expect(clients.behind(clients.atAddress('10.0.0.1'), { headers })).toMatchObject({ isLimited });
});

test.each(['', '1', '10.0.0', '10.0.0.0/33', '10.0.0.0/', '::/129', 'example.com', '10.0.0.1/8/8'])(
  'the text "%s" is no range of addresses',
  (text) => {
    expect(addressRange(text)).toBeUndefined();
  },
);
