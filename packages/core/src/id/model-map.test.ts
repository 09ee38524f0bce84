import { expect, test } from 'vitest';

import { Address } from '../../test/order.js';
import { Wallet } from '../../test/wallet.js';
import { ModelMap } from './model-class.js';

test('models of two classes may have the same id', () => {
  const map = new ModelMap<string>();
  map.set(Wallet, 'a', 'wallet');
  map.set(Address, 'a', 'address');
  map.delete(Wallet, 'a');
  expect([map.get(Wallet, 'a'), map.get(Address, 'a')]).toEqual([undefined, 'address']);
});

test('a missing model can be deleted as well', () => {
  const map = new ModelMap<string>();
  map.delete(Wallet, 'a');
  expect(map.get(Wallet, 'a')).toBeUndefined();
});
