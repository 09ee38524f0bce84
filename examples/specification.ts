// What an action does, as specifications: given, when, then. They run in memory, here without any test runner.
import {
  Action,
  type Clock,
  Model,
  ModelEvent,
  type Repository,
  ShardIdentifier,
  ShardedId,
} from '@framework/core';
import { specification } from '@framework/testing/specification';
import * as z from 'zod';

class Order extends Model<Order, ShardedId<Order>, 'OPEN' | 'PAID'> {
  pay(): Order {
    if (this.state === 'PAID') throw new AlreadyPaidError();
    return this.copy({ state: 'PAID' }, new OrderPaidEvent(this.id.value, Order));
  }
}

class OrderPaidEvent extends ModelEvent<Order> {
  static readonly payload = z.object({});
}

class AlreadyPaidError extends Error {}

class PayOrderAction extends Action<ShardedId<Order>, Order> {
  readonly #orders: Repository<Order>;

  constructor(clock: Clock, orders: Repository<Order>) {
    super(clock);
    this.#orders = orders;
  }

  protected async perform(_principal: unknown, orderId: ShardedId<Order>): Promise<Order> {
    const order = await this.#orders.getById(orderId);
    return this.plan().update(order.pay());
  }
}

const spec = specification({
  models: [Order],
  actions: ({ clock, repository }) => [new PayOrderAction(clock, repository(Order))],
});
const id = ShardedId.generate(Order, ShardIdentifier.of(0, 0));
const order = new Order({ id, state: 'OPEN', createdDate: new Date('2026-01-01T00:00:00Z') });

await spec
  .given(order)
  .when(PayOrderAction, id)
  .thenExpect({ models: [order.pay()], events: [new OrderPaidEvent(id.value, Order)] });
console.log('an open order is paid');

await spec.given(order.pay()).when(PayOrderAction, id).thenThrows(AlreadyPaidError);
console.log('a paid order is refused, and nothing is committed');

// Output:
// an open order is paid
// a paid order is refused, and nothing is committed
