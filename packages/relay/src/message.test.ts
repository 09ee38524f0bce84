import { ShardIdentifier, ShardedId } from '@framework/core';
import { expect, test } from 'vitest';

import { Counter, CounterIncreasedEvent } from '../test/counter.js';
import { published } from '../test/published.js';

const event = new CounterIncreasedEvent(ShardedId.generate(Counter, ShardIdentifier.of(1, 2)), 5);

test('a message passes on the trace context of the action', () => {
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  expect(published(event, { headers: { traceparent } }).attributes).toMatchObject({ traceparent });
});

test.each([
  ['is empty', ''],
  ['is none', 'forged'],
  ['is longer than brokers allow', 'x'.repeat(70_000)],
])('a message leaves out a header traceparent that %s', (_how, traceparent) => {
  expect(published(event, { headers: { traceparent } }).attributes).not.toHaveProperty('traceparent');
});
