import { expect, test } from 'vitest';

import { Order } from '../../test/order.js';
import { Wallet, WalletDepositedEvent } from '../../test/wallet.js';
import { ShardedId } from '../id/id.js';
import { ModelEvent } from './model-event.js';

const id = ShardedId.of(Wallet, '018f3c00-0000-7abc-8000-000000000000');

test('an event knows the id and the class of its model', () => {
  expect(new WalletDepositedEvent(id, 1n, 2n)).toMatchObject({ modelId: id.value, model: Wallet });
});

test('an event whose class declares no payload is refused', () => {
  class OrderLostEvent extends ModelEvent<Order> {}
  expect(() => new OrderLostEvent('order-1', Order)).toThrow(
    expect.objectContaining({
      code: 'invariant-violation',
      message: expect.stringContaining('OrderLostEvent'),
    }),
  );
});
