import { ShardIdentifier } from '@framework/core';
import { like, specification } from '@framework/testing/specification';
import { test } from 'vitest';
import { IncreaseCounterAction, OpenCounterAction } from '../src/counter-actions.ts';
import { Counter, CounterIncreasedEvent } from '../src/counter.ts';

const shard = ShardIdentifier.of(0, 0);
const spec = specification({
  models: [Counter],
  shards: [shard],
  actions: ({ clock, repository }) => [
    new OpenCounterAction(clock),
    new IncreaseCounterAction(clock, repository(Counter)),
  ],
});
const counter = Counter.open(shard, new Date('2026-01-01T00:00:00Z'));

test('a counter opens at zero on the requested shard', async () => {
  await spec
    .given()
    .when(OpenCounterAction, { shard })
    .thenExpect({ models: [like(Counter, { value: 0 })], events: [] });
});

test('an increase is committed with an event that carries its amount', async () => {
  await spec
    .given(counter)
    .when(IncreaseCounterAction, { id: counter.id, by: 5 })
    .thenExpect({ models: [counter.increase(5)], events: [new CounterIncreasedEvent(counter.id, 5)] });
});
