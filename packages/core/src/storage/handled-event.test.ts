import { expect, test } from 'vitest';

import { ShardIdentifier } from '../id/shard-identifier.js';
import { handledEventOf, sourceOf } from './idempotency-keys.js';

test.each([
  { handler: 'notify', eventId: 'e-1', shard: ShardIdentifier.of(0, 0) },
  { handler: 'a handler\nof two lines', eventId: 'e-2', shard: ShardIdentifier.of(255, 63) },
])('an event of $shard that is stored beside a key is read back unchanged', (event) => {
  expect(handledEventOf(sourceOf(event))).toEqual(event);
});

test.each(['', '1/2 e-1', 'v2 1/2 e-1 notify', '1/64 e-1 notify', '256/0 e-1 notify'])(
  'a text that does not name an event is not mistaken for one: "%s"',
  (text) => {
    expect(handledEventOf(text)).toBeUndefined();
  },
);
