import * as z from 'zod';
import {
  Entity,
  type Id,
  Model,
  ModelEvent,
  type New,
  type NewEntity,
  type ShardedId,
} from '../src/index.js';

/** A second model, for tests that confuse it with the first one. */
export class Order extends Model<Order, ShardedId<Order>, 'PLACED'> {
  readonly lines: number;

  constructor(fields: New<Order>) {
    super(fields);
    this.lines = fields.lines;
  }

  ship(): Order {
    return this.emit(new OrderShippedEvent(this.id));
  }
}

export class OrderShippedEvent extends ModelEvent<Order> {
  static readonly payload = z.object({});

  constructor(orderId: Id<Order>) {
    super(orderId.toString(), Order);
  }
}

/** An entity, which has no events. */
export class Address extends Entity<Address, ShardedId<Address>, 'KNOWN' | 'LEFT'> {
  readonly city: string;

  constructor(fields: NewEntity<Address>) {
    super(fields);
    this.city = fields.city;
  }

  move(city: string): Address {
    return this.copy({ city });
  }

  leave(): Address {
    return this.copy({ state: 'LEFT' });
  }
}
