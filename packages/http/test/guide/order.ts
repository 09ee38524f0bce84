import {
  Action,
  type ActionPolicy,
  EntityNotFoundError,
  Model,
  ModelEvent,
  type New,
  type Principal,
  type Repository,
  ShardIdentifier,
  ShardedId,
  decimalCodec,
  shardedIdCodec,
  systemClock,
} from '@framework/core';
import { Big } from 'big.js';
import * as z from 'zod';

class OrderPlacedEvent extends ModelEvent<Order> {
  static readonly payload = z.object({});

  constructor(id: ShardedId<Order>) {
    super(id.toString(), Order);
  }
}

class OrderCancelledEvent extends ModelEvent<Order> {
  static readonly payload = z.object({});

  constructor(id: ShardedId<Order>) {
    super(id.toString(), Order);
  }
}

/** The rules of orders that a client can break. */
type OrderErrorCode = 'invalid-total' | 'order-cancelled' | 'precondition-failed';

/** An order cannot be placed or changed; its code names a problem of the API. */
export class OrderError extends Error {
  readonly code: OrderErrorCode;

  constructor(code: OrderErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** An order of a customer, with an exact total. */
export class Order extends Model<Order, ShardedId<Order>, 'PLACED' | 'CANCELLED'> {
  readonly customer: string;
  readonly total: Big;

  constructor(fields: New<Order>) {
    super(fields);
    this.customer = fields.customer;
    this.total = fields.total;
  }

  static place(customer: string, total: Big, now: Date): Order {
    if (total.lte(0)) throw new OrderError('invalid-total', 'The total of an order must be positive');
    const id = ShardedId.generate(Order, ShardIdentifier.of(0, 0));
    const fields = { id, state: 'PLACED', createdDate: now, customer, total } as const;
    return new Order(fields).emit(new OrderPlacedEvent(id));
  }

  cancel(): Order {
    if (this.state === 'CANCELLED') throw new OrderError('order-cancelled', 'The order was cancelled before');
    return this.copy({ state: 'CANCELLED' }, new OrderCancelledEvent(this.id));
  }

  inVersion(expected: readonly number[] | undefined): this {
    if (expected?.includes(this.version) !== false) return this;
    throw new OrderError('precondition-failed', `The current version of the order is ${this.version}`);
  }
}

const placeParams = z.object({ total: decimalCodec(Big) });

/** Places an order for the caller. */
export class PlaceOrderAction extends Action<z.output<typeof placeParams>, Order> {
  static readonly params = placeParams;
  static readonly result = Order;

  protected async perform({ name }: Principal, { total }: z.output<typeof placeParams>): Promise<Order> {
    return this.plan().add(Order.place(name, total, this.clock.now()));
  }
}

const params = z.object({
  id: shardedIdCodec(Order),
  expectedVersions: z.array(z.int()).readonly().optional(),
});
type Params = z.output<typeof params>;

/** Cancels an order if it has one of the versions that the caller expects. */
export class CancelOrderAction extends Action<Params, Order> {
  static readonly params = params;
  static readonly result = Order;
  override readonly policy: ActionPolicy<Params> = {
    authorize: async ({ principal, params: { id } }) => {
      const { customer } = await this.#orders.getById(id);
      if (customer !== principal.name) throw new EntityNotFoundError('Order', id.value);
    },
  };
  readonly #orders: Repository<Order>;

  constructor(orders: Repository<Order>) {
    super(systemClock);
    this.#orders = orders;
  }

  protected async perform(_principal: Principal, { id, expectedVersions }: Params): Promise<Order> {
    const order = await this.#orders.getById(id);
    return this.plan().update(order.inVersion(expectedVersions).cancel());
  }
}
