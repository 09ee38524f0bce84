import { expect, test } from 'vitest';

import { Address } from '../../test/order.js';
import { ShardedId } from '../id/id.js';

const id = ShardedId.of(Address, '018f3c00-0000-7abc-8000-000000000000');

test('an entity starts at version 0', () => {
  expect(new Address({ id, state: 'KNOWN', city: 'Riga' })).toMatchObject({ id, version: 0, city: 'Riga' });
});

test('a copy of an entity has the changed fields and the same version as the unchanged original', () => {
  const address = new Address({ id, state: 'KNOWN', city: 'Riga', version: 4 });
  expect(address.move('Oslo').leave()).toEqual(new Address({ id, state: 'LEFT', city: 'Oslo', version: 4 }));
  expect(address).toEqual(new Address({ id, state: 'KNOWN', city: 'Riga', version: 4 }));
});

test.each([-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '3' as unknown as number])(
  'an entity of version %s is refused',
  (version) => {
    expect(() => new Address({ id, state: 'KNOWN', city: 'Riga', version })).toThrow(
      expect.objectContaining({ code: 'invalid-model' }),
    );
  },
);
