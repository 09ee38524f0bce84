import {
  Action,
  type Clock,
  Id,
  Model,
  ModelEvent,
  type New,
  type Principal,
  type ShardingStrategy,
} from '@framework/core';
import { type EventHandler, FrameworkEventHandler } from '@framework/events';
import { expect, test } from 'vitest';
import * as z from 'zod';

import type { MemoryRepository } from '../../src/memory/index.js';
import {
  type Specification,
  type TestEnvironmentOptions,
  specification,
} from '../../src/specification/index.js';
import { firstShard, otherDatabaseShard } from './accounts.js';

/** A model whose id is not a UUID: a country's code and a number. */
class Shop extends Model<Shop, Id<Shop>, 'OPEN'> {
  readonly visits: number;

  constructor(fields: New<Shop>) {
    super(fields);
    this.visits = fields.visits;
  }

  visit(): Shop {
    return this.copy({ visits: this.visits + 1 }, new ShopVisitedEvent(this.id));
  }
}

class ShopVisitedEvent extends ModelEvent<Shop> {
  static readonly payload = z.object({});

  constructor(shopId: Id<Shop>) {
    super(shopId.toString(), Shop);
  }
}

const byCountry: ShardingStrategy<Shop> = {
  shardOfModel: ({ id }) => shardOf(id.value),
  shardOfId: shardOf,
};

/** Cannot tell the shard from an id. */
const byModel: ShardingStrategy<Shop> = { ...byCountry, shardOfId: () => undefined };

function shardOf(id: string): typeof firstShard {
  return id.startsWith('mx-') ? otherDatabaseShard : firstShard;
}

const shop = new Shop({
  id: Id.of(Shop, 'mx-17'),
  state: 'OPEN',
  createdDate: new Date(0),
  version: 1,
  visits: 0,
});

interface Visit {
  readonly shopId: string;
}

/** Finds the shop by a condition, because its id does not contain the shard. */
class VisitAction extends Action<Visit, undefined> {
  readonly #shops: Pick<MemoryRepository<Shop>, 'findOneWhere'>;

  constructor(clock: Clock, shops: Pick<MemoryRepository<Shop>, 'findOneWhere'>) {
    super(clock);
    this.#shops = shops;
  }

  protected async perform(_principal: Principal, { shopId }: Visit): Promise<undefined> {
    const found = await this.#shops.findOneWhere(({ id }) => id.value === shopId);
    if (found !== undefined) this.plan().update(found.visit());
  }
}

class SeeVisit implements EventHandler<ShopVisitedEvent> {
  readonly event = ShopVisitedEvent;
  readonly handle = (): Promise<void> => Promise.resolve();
}
FrameworkEventHandler({ name: 'see-visit' })(SeeVisit);

function specificationOf(models: TestEnvironmentOptions['models']): Specification {
  return specification({
    models,
    shards: [firstShard, otherDatabaseShard],
    actions: ({ clock, repository }) => [new VisitAction(clock, repository(Shop))],
    handlers: () => [new SeeVisit()],
  });
}

test.each([
  ['finds the shard of an id', byCountry],
  ['cannot find the shard of an id', byModel],
])('a specification compares the effects on a model whose strategy %s', async (_how, strategy) => {
  const environment = await specificationOf([{ model: Shop, strategy }])
    .given(shop)
    .environment();
  await environment.execute(VisitAction, { shopId: shop.id.value });
  expect(environment.commits).toMatchObject([{ shard: otherDatabaseShard }]);
  expect(await environment.changedSince(0)).toMatchObject([{ visits: 1, version: 2 }]);
});

test.each([byCountry, byModel])(
  'an event of a model with a custom strategy is committed on the shard of the model',
  async (strategy) => {
    const environment = await specificationOf([{ model: Shop, strategy }])
      .given(shop)
      .whenHandled(new ShopVisitedEvent(shop.id))
      .thenNothing();
    expect(environment.commits).toMatchObject([{ shard: otherDatabaseShard }]);
  },
);

test('a model whose id contains no shard is refused without a strategy, and the error says how to list one', async () => {
  await expect(specificationOf([Shop]).given(shop).environment()).rejects.toMatchObject({
    code: 'no-strategy',
    message: expect.stringContaining('models: [{ model: Shop, strategy }]'),
    cause: { code: 'invalid-id' },
  });
});
