// The log never changes, but classes of events do. `upcast` converts what an earlier release has written.
import {
  Action,
  ActionExecutor,
  type Clock,
  Model,
  ModelEvent,
  ShardIdentifier,
  ShardedId,
  openDatabases,
  systemClock,
} from '@framework/core';
import { Delivery, type EventEnvelope, type EventHandler } from '@framework/events';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';
import * as z from 'zod';

class Shop extends Model<Shop, ShardedId<Shop>, 'OPEN'> {
  record(event: ModelEvent<Shop>): Shop {
    return this.copy({}, event);
  }
}

/** In the first release: the price is in euros. */
class OldSaleEvent extends ModelEvent<Shop> {
  static readonly eventType = 'SaleEvent';
  static readonly payload = z.object({ euros: z.number() });
  readonly euros = 4.99;
}

/** In the second release: the price is in cents, and the name in the log is the same. */
class SaleEvent extends ModelEvent<Shop> {
  static readonly payload = z.object({ cents: z.int() });
  readonly cents: number = 550;

  static upcast(payload: { readonly euros: number } | { readonly cents: number }): object {
    return 'euros' in payload ? { cents: Math.round(payload.euros * 100) } : payload;
  }
}

class SellAction extends Action<object, Shop> {
  readonly #sale: ModelEvent<Shop>;

  constructor(clock: Clock, sale: ModelEvent<Shop>) {
    super(clock);
    this.#sale = sale;
  }

  protected async perform(): Promise<Shop> {
    const shop = await shops.getById(this.#sale.modelId);
    return this.plan().update(shop.record(this.#sale));
  }
}

class AddToTurnover implements EventHandler<SaleEvent> {
  static readonly handlerName = 'add-to-turnover';
  static readonly options = { startFrom: 'beginning' } as const;
  readonly event = SaleEvent;

  async handle({ event, payload }: EventEnvelope<SaleEvent>): Promise<void> {
    console.log(`${JSON.stringify(payload)} is read as ${event.cents} cents`);
    if (event.cents === 550) tellHandled();
  }
}

const { promise: handled, resolve: tellHandled } = Promise.withResolvers<void>();
const shard = ShardIdentifier.of(0, 0);
const databases = openDatabases(memorySharding(shard), memory());
const shops = new MemoryRepository({ model: Shop, databases });

const id = ShardedId.generate(Shop, shard);
await shops.put(new Shop({ id, state: 'OPEN', createdDate: systemClock.now() }));

function releaseThatWrites(sale: ModelEvent<Shop>): ActionExecutor {
  const actions = [new SellAction(systemClock, sale)];
  return new ActionExecutor({ namespace: 'shop', databases, repositories: [shops], actions });
}

await releaseThatWrites(new OldSaleEvent(id.value, Shop)).execute({ name: 'Ada' }, SellAction, {});
const executor = releaseThatWrites(new SaleEvent(id.value, Shop));
await executor.execute({ name: 'Ada' }, SellAction, {});
const delivery = new Delivery({ databases, executor, handlers: [new AddToTurnover()] });
delivery.start();
await handled;
await delivery.stop();

// Output:
// {"euros":4.99} is read as 499 cents
// {"cents":550} is read as 550 cents
