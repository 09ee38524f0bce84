import { expect, test } from 'vitest';

import { namesEvents, parseAddress, to } from './address.js';

test.each<[readonly string[], Readonly<Record<string, string>>]>([
  [[], {}],
  [['dead-letters'], { handler: 'notify', errorLine: 'Error: 100% full & more? #1' }],
  [['dead-letters'], { handler: 'notify', errorLine: '' }],
  [['why', 'a/b?c#d%e'], {}],
  [['events'], { after: '{"0/0":"x=y"}' }],
])('the address of %j with %j leads back to it', (path, query) => {
  expect(parseAddress(to(path, query))).toEqual({ path, query });
});

test('filters that are not given are in no address', () => {
  expect(to(['events'], { type: undefined, shard: undefined, action: 'Pay' })).toBe('#/events?action=Pay');
});

test('a link that was cut off still leads somewhere', () => {
  expect(parseAddress('#/why/50%')).toEqual({ path: ['why', '50%'], query: {} });
  expect(parseAddress('')).toEqual({ path: [], query: {} });
});

test.each<[Readonly<Record<string, string | undefined>>, boolean]>([
  [{}, false],
  [{ since: undefined, until: undefined }, false],
  [{ shard: '0/0', since: undefined }, false],
  [{ shard: '0/0', type: 'Paid' }, true],
  [{ modelId: 'a' }, true],
])('a search by %j names events to publish again: %s', (query, isNamed) => {
  expect(namesEvents(query)).toBe(isNamed);
});
