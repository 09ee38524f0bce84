// A model, an action that changes it, and its execution on a database in memory.
import {
  Action,
  ActionExecutor,
  Model,
  ShardIdentifier,
  ShardedId,
  openDatabases,
  systemClock,
} from '@framework/core';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';

class Order extends Model<Order, ShardedId<Order>, 'OPEN' | 'PAID'> {
  pay(): Order {
    return this.copy({ state: 'PAID' });
  }
}

class PayOrderAction extends Action<ShardedId<Order>, Order> {
  protected async perform(_principal: unknown, orderId: ShardedId<Order>): Promise<Order> {
    return this.plan().update((await orders.getById(orderId)).pay());
  }
}

const databases = openDatabases(memorySharding(ShardIdentifier.of(0, 0)), memory());
const orders = new MemoryRepository({ model: Order, databases });
const actions = [new PayOrderAction(systemClock)];
const executor = new ActionExecutor({ namespace: 'shop', databases, repositories: [orders], actions });
const id = ShardedId.generate(Order, ShardIdentifier.of(0, 0));
await orders.put(new Order({ id, state: 'OPEN', createdDate: new Date() }));
console.log((await executor.execute({ name: 'Ada' }, PayOrderAction, id)).state); // PAID

// Output:
// PAID
