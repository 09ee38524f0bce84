// A model and an event whose fields are declared once, by schemas: types, constructors, checks and the log follow from these.
import { ShardIdentifier, ShardedId, defineEvent, defineModel } from '@framework/core';
import * as z from 'zod';

class Order extends defineModel('Order', {
  state: z.enum(['OPEN', 'PAID']),
  customer: z.string().min(1),
  pieces: z.int().positive(),
}) {
  pay(paidWith: string): Order {
    return this.copy({ state: 'PAID' }, new OrderPaidEvent(this.id, { pieces: this.pieces, paidWith }));
  }
}

class OrderPaidEvent extends defineEvent(() => Order, { pieces: z.int(), paidWith: z.string() }) {}

const id = ShardedId.generate(Order, ShardIdentifier.of(0, 0));
const orderOf = (pieces: number): Order =>
  new Order({ id, createdDate: new Date(), state: 'OPEN', customer: 'Ada', pieces });
const order = orderOf(3);
const paid = order.pay('card');
const [event] = paid.events as readonly OrderPaidEvent[];
console.log(`${order.state} ${paid.state} ${event?.pieces} by ${event?.paidWith}`);

try {
  orderOf(0);
} catch (error) {
  console.log(String(error));
}

// Output:
// OPEN PAID 3 by card
// InvalidModelError: Order.pieces: Too small: expected number to be >0
