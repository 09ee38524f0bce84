import { Socket } from 'node:net';

import { describe, expect, test } from 'vitest';

import { leftBehind } from '../../../core/test/left-behind.js';
import { ClientAddresses, ConnectionCounts, addressRange } from './client-address.js';

const clients = new ClientAddresses({
  trustedProxies: ['10.0.0.0/8', 'fd00::1'],
  unlimited: ['192.0.2.0/24'],
});

test.each([
  ['203.0.113.9', '203.0.113.9'],
  ['::ffff:203.0.113.9', '203.0.113.9'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::', '2001:db8:1:2::/64'],
  ['fe80::1%br-lan', 'fe80:0:0:0::/64'],
  ['fe80::1%eth0.100', 'fe80:0:0:0::/64'],
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

test('a range of IPv4 addresses may be written as one of IPv6', () => {
  const mapped = new ClientAddresses({ trustedProxies: ['::ffff:10.0.0.0/104'], unlimited: [] });
  expect(mapped.atAddress('10.1.2.3')).toMatchObject({ isProxy: true });
  expect(mapped.atAddress('::ffff:10.1.2.3')).toMatchObject({ isProxy: true });
  expect(mapped.atAddress('11.1.2.3')).toMatchObject({ isProxy: false });
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
    expect(() => new ClientAddresses({ trustedProxies: [text], unlimited: [] })).toThrow(TypeError);
  },
);

describe('the connections of a client', () => {
  const one = { address: 'one', isLimited: true, isProxy: false };

  test('are admitted up to the maximum, again after others have closed, and not beyond', () => {
    const counts = new ConnectionCounts(2);
    const sockets = [1, 2, 3].map(() => new Socket());
    expect(sockets.map((socket) => counts.admit(one, socket))).toEqual([true, true, false]);
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([false, false, true]);
    expect(counts.admit({ ...one, address: 'other' }, new Socket())).toBe(true);
    sockets[0]?.emit('close');
    expect([1, 2].map(() => counts.admit(one, new Socket()))).toEqual([true, false]);
  });

  test('that are refused are not counted, and those without a limit are all admitted', () => {
    const counts = new ConnectionCounts(1);
    const first = new Socket();
    counts.admit(one, first);
    for (let refused = 0; refused < 5; refused++) counts.admit(one, new Socket());
    first.emit('close');
    expect(counts.admit(one, new Socket())).toBe(true);
    const unlimited = { ...one, isLimited: false };
    expect([1, 2, 3].map(() => counts.admit(unlimited, new Socket()))).toEqual([true, true, true]);
  });

  test('leave nothing behind once they are closed, however many clients there were', async () => {
    const counts = new ConnectionCounts(2);
    const lasting = new Socket();
    counts.admit(one, lasting);
    const left = await leftBehind((number) => {
      const sockets = [1, 2, 3].map(() => new Socket());
      for (const socket of sockets) counts.admit({ ...one, address: `client ${number}` }, socket);
      for (const socket of sockets.slice(0, 2)) socket.emit('close');
    });
    expect(left).toEqual([]);
  });
});

test.each([
  ['10.0.0.0/8', ['10.0.0.0', '10.255.255.255'], ['9.255.255.255', '11.0.0.0']],
  ['192.0.2.128/25', ['192.0.2.128', '192.0.2.255'], ['192.0.2.127', '192.0.3.0']],
  ['192.0.2.7', ['192.0.2.7'], ['192.0.2.6', '192.0.2.8']],
  ['0.0.0.0/0', ['0.0.0.0', '255.255.255.255'], ['::1']],
  ['2001:db8::/32', ['2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff'], ['2001:db7::', '2001:db9::']],
  ['::1', ['::1'], ['::', '::2']],
])('the range %s contains its first and last address, and no others', (range, inside, outside) => {
  const of = new ClientAddresses({ trustedProxies: [], unlimited: [range] });
  const isIn = (address: string): boolean => !of.atAddress(address).isLimited;
  expect([inside.map(isIn), outside.map(isIn)]).toEqual([inside.map(() => true), outside.map(() => false)]);
});
