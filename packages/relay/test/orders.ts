import { type Id, Model, ModelEvent, type ShardedId } from '@framework/core';
import * as z from 'zod';

import { type AsyncApiDocument, type AsyncApiOptions, asyncApiDocument } from '../src/asyncapi.js';

class Order extends Model<Order, ShardedId<Order>, 'OPEN'> {}

const moneySchema = z
  .object({ amount: z.string(), currency: z.enum(['EUR', 'MXN']) })
  .meta({ id: 'Money', description: 'An exact amount.' });

const categorySchema = z.object({
  name: z.string(),
  get within() {
    return z.array(categorySchema);
  },
});

class OrderPlacedEvent extends ModelEvent<Order> {
  static readonly payload = z.object({
    price: moneySchema,
    discount: moneySchema.optional(),
    'ship-to': z.object({ street: z.string(), since: z.iso.datetime() }),
    lines: z.array(
      z.object({
        count: z.int(),
        size: z.enum(['S', 'M']),
        taxes: z.record(z.string(), z.object({ rate: z.number() })),
      }),
    ),
    delivery: z.union([z.object({ locker: z.string() }), z.object({ floor: z.int() })]),
    gift: z.object({ wrapped: z.boolean() }).nullable(),
    category: categorySchema,
    channel: z.literal('web'),
  });

  constructor(id: Id<Order>) {
    super(id.toString(), Order);
  }
}

class OrderCancelledEvent extends ModelEvent<Order> {
  static readonly payload = z.object({ refund: moneySchema, by: z.enum(['customer', 'shop']) });

  constructor(id: Id<Order>) {
    super(id.toString(), Order);
  }
}

/** The document of events whose payloads have all that may need a name. */
export function orders(options: Partial<AsyncApiOptions> = {}): AsyncApiDocument {
  return asyncApiDocument({
    title: 'Orders',
    version: '1.0.0',
    namespace: 'com.example.shop',
    models: [{ model: Order, events: [OrderPlacedEvent, OrderCancelledEvent] }],
    ...options,
  });
}
