// An action behind HTTP: a route with a schema, a problem of the application, and a request that is repeated with its key.
import {
  Action,
  ActionExecutor,
  Model,
  ShardIdentifier,
  ShardedId,
  openDatabases,
  systemClock,
} from '@framework/core';
import { HttpApi, route, uuidField } from '@framework/http';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';
import * as z from 'zod';

class OrderPaidError extends Error {
  readonly code = 'order-paid';
}

class Order extends Model<Order, ShardedId<Order>, 'OPEN' | 'PAID'> {
  pay(): Order {
    if (this.state === 'PAID') throw new OrderPaidError('The order was paid before');
    return this.copy({ state: 'PAID' });
  }
}

class PayOrderAction extends Action<ShardedId<Order>, Order> {
  static readonly result = Order;

  protected async perform(_principal: unknown, orderId: ShardedId<Order>): Promise<Order> {
    return this.plan().update((await orders.getById(orderId)).pay());
  }
}

const databases = openDatabases(memorySharding(ShardIdentifier.of(0, 0)), memory());
const orders = new MemoryRepository({ model: Order, databases });
const actions = [new PayOrderAction(systemClock)];
const executor = new ActionExecutor({ namespace: 'shop', databases, repositories: [orders], actions });

const payOrder = route.post(
  '/orders/{id}/pay',
  {
    summary: 'Pay an order',
    action: PayOrderAction,
    path: z.object({ id: uuidField }),
    answer: z.object({ state: z.string() }),
    problems: ['order-paid', 'order-not-found'],
  },
  async ({ path, idOf, execute }) => {
    const { state } = await execute(PayOrderAction, idOf(Order, path.id));
    return { body: { state } };
  },
);

const api = new HttpApi({
  name: 'shop',
  info: { title: 'Shop', version: '1.0.0' },
  problems: {
    'order-paid': { status: 409, title: 'The order is paid already' },
    'order-not-found': { status: 404, title: 'The order does not exist' },
  },
  routes: [payOrder],
  executor,
  databases,
});

const id = ShardedId.generate(Order, ShardIdentifier.of(0, 0));
await orders.put(new Order({ id, state: 'OPEN', createdDate: systemClock.now() }));

async function pay(address: string, key: string): Promise<void> {
  const headers = { 'Idempotency-Key': key };
  const answer = await api.fetch(new Request(`http://shop${address}`, { method: 'POST', headers }));
  const { state, code } = (await answer.json()) as { readonly state?: string; readonly code?: string };
  const replayed = answer.headers.has('Idempotency-Replayed') ? ', answered before' : '';
  console.log(`${answer.status} ${state ?? code}${replayed}`);
}

await pay(`/orders/${id.value}/pay`, 'payment-1');
await pay(`/orders/${id.value}/pay`, 'payment-1');
await pay(`/orders/${id.value}/pay`, 'payment-2');
await pay(`/orders/${crypto.randomUUID()}/pay`, 'payment-3');
await pay('/orders/1/pay', 'payment-4');

// Output:
// 200 PAID
// 200 PAID, answered before
// 409 order-paid
// 404 order-not-found
// 400 bad-request
