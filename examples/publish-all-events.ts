// A batch handler publishes all events to a broker, many at once, without knowing their classes.
import {
  Action,
  ActionExecutor,
  Model,
  ModelEvent,
  ShardIdentifier,
  ShardedId,
  openDatabases,
  systemClock,
} from '@framework/core';
import { type BatchEventHandler, Delivery, type EventEnvelope } from '@framework/events';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';
import * as z from 'zod';

const shard = ShardIdentifier.of(0, 0);
const { promise: published, resolve: tellPublished } = Promise.withResolvers<void>();

class Order extends Model<Order, ShardedId<Order>, 'PLACED' | 'PAID'> {
  place(): Order {
    return this.emit(new OrderPlacedEvent(this.id.value, Order));
  }

  pay(by: string): Order {
    return this.copy({ state: 'PAID' }, new OrderPaidEvent(this.id.value, by));
  }
}

class OrderPlacedEvent extends ModelEvent<Order> {
  static readonly payload = z.object({});
}

class OrderPaidEvent extends ModelEvent<Order> {
  static readonly payload = z.object({ by: z.string() });
  readonly by: string;

  constructor(modelId: string, by: string) {
    super(modelId, Order);
    this.by = by;
  }
}

class BuyAction extends Action<{ readonly by: string }, Order> {
  protected async perform(_principal: unknown, { by }: { readonly by: string }): Promise<Order> {
    const id = ShardedId.generate(Order, shard);
    const order = new Order({ id, state: 'PLACED', createdDate: this.clock.now() });
    return this.plan().add(order.place().pay(by));
  }
}

class PublishAll implements BatchEventHandler<undefined> {
  static readonly handlerName = 'publish-all';
  // While the broker is down, the events wait in their order. None becomes a dead letter.
  static readonly options = { startFrom: 'beginning', whenBatchFails: 'wait' } as const;
  readonly event = 'all';

  async handleBatch(envelopes: readonly EventEnvelope<undefined>[]): Promise<void> {
    console.log(`${envelopes.length} events at once`);
    for (const { eventType, payload } of envelopes) console.log(`${eventType} ${JSON.stringify(payload)}`);
    tellPublished();
  }
}

const databases = openDatabases(memorySharding(shard), memory());
const repositories = [new MemoryRepository({ model: Order, databases })];
const actions = [new BuyAction(systemClock)];
const executor = new ActionExecutor({ namespace: 'shop', databases, repositories, actions });
await executor.execute({ name: 'Ada' }, BuyAction, { by: 'card' });

const delivery = new Delivery({ databases, executor, handlers: [new PublishAll()] });
delivery.start();
await published;
await delivery.stop();

// Output:
// 2 events at once
// OrderPlacedEvent {}
// OrderPaidEvent {"by":"card"}
