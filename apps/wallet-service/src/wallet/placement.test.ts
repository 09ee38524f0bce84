import { ShardIdentifier } from '@framework/core';
import { expect, test } from 'vitest';

import { placementOf } from './placement.js';

test('the country Mexico is placed on shard (1, 0)', () => {
  expect(placementOf('MX')).toBe(ShardIdentifier.of(1, 0));
});

test.each(['DE', 'US', 'mx', 'Mx', 'MEX', ' MX', ''])(
  'the country %j is placed on shard (0, 0)',
  (country) => {
    expect(placementOf(country)).toBe(ShardIdentifier.of(0, 0));
  },
);
