import { expect, test } from 'vitest';

import { CallContext } from '../src/call/handler-caller.js';
import { deposited } from './account.js';
import { shard } from './delivery-bench.js';

test('a handler that asks for its signal after it was abandoned gets an aborted signal with the reason', () => {
  const executor = { execute: () => Promise.reject(new Error('no action is executed')) };
  const context = new CallContext('one', deposited('a', 1), shard, 1, executor);
  const reason = new Error('too slow');
  context.abort(reason);
  expect(context.signal.aborted).toBe(true);
  expect(context.signal.reason).toBe(reason);
});
