// A saga of two actions: an order is placed on the shop's shard, then its parcel is packed on the warehouse's shard.
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
import { Delivery, type EventEnvelope, type EventHandler, type HandlerContext } from '@framework/events';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';
import * as z from 'zod';

const [shop, warehouse] = [ShardIdentifier.of(0, 0), ShardIdentifier.of(1, 0)];

class Order extends Model<Order, ShardedId<Order>, 'PLACED'> {
  place(): Order {
    return this.emit(new OrderPlacedEvent(this.id.value, Order));
  }
}

class OrderPlacedEvent extends ModelEvent<Order> {
  static readonly payload = z.object({});
}

class Parcel extends Model<Parcel, ShardedId<Parcel>, 'PACKED'> {}

class PlaceOrderAction extends Action<object, Order> {
  protected async perform(): Promise<Order> {
    const id = ShardedId.generate(Order, shop);
    return this.plan().add(new Order({ id, state: 'PLACED', createdDate: this.clock.now() }).place());
  }
}

class PackParcelAction extends Action<ShardedId<Order>, Parcel> {
  static readonly result = Parcel;

  protected async perform(_principal: unknown, orderId: ShardedId<Order>): Promise<Parcel> {
    // The id is derived from the order's, so that an order can never get two parcels.
    const id = ShardedId.derive(Parcel, orderId, warehouse);
    return this.plan().add(new Parcel({ id, state: 'PACKED', createdDate: this.clock.now() }));
  }
}

/** The event of the first action leads to the second. If that one fails, delivery tries it again. */
class PackOrder implements EventHandler<OrderPlacedEvent> {
  static readonly handlerName = 'pack-order';
  // The next step of a saga must miss no event, however old.
  static readonly options = { startFrom: 'beginning' } as const;
  readonly event = OrderPlacedEvent;

  async handle({ modelId }: EventEnvelope<OrderPlacedEvent>, context: HandlerContext): Promise<void> {
    tellPacked(await context.execute(PackParcelAction, ShardedId.of(Order, modelId)));
  }
}

const { promise: packed, resolve: tellPacked } = Promise.withResolvers<Parcel>();
const databases = openDatabases(memorySharding(shop, warehouse), memory());
const orders = new MemoryRepository({ model: Order, databases });
const parcels = new MemoryRepository({ model: Parcel, databases });
const repositories = [orders, parcels];
const actions = [new PlaceOrderAction(systemClock), new PackParcelAction(systemClock)];
const executor = new ActionExecutor({ namespace: 'shop', databases, repositories, actions });
const delivery = new Delivery({ databases, executor, handlers: [new PackOrder()] });
delivery.start();

const order = await executor.execute({ name: 'Ada' }, PlaceOrderAction, {});
console.log(`order placed on ${String(order.id.resolveShardIdentifier())}`);
const parcel = await packed;
console.log(`parcel packed on ${String(parcel.id.resolveShardIdentifier())}`);
await delivery.stop();

// Output:
// order placed on shard (0, 0)
// parcel packed on shard (1, 0)
