import {
  Action,
  ActionExecutor,
  type DatabaseRegistry,
  Model,
  ModelEvent,
  type New,
  type Principal,
  type Repository,
  ShardIdentifier,
  ShardedId,
  decimalCodec,
  openDatabases,
  parseFrameworkConfig,
  shardedIdCodec,
  systemClock,
} from '@framework/core';
import { MemoryRepository, MemoryServer, memory } from '@framework/testing/memory';
import { Big } from 'big.js';
import * as z from 'zod';

import {
  HttpApi,
  type HttpApiOptions,
  decimalField,
  healthRoutes,
  pageOf,
  route,
  uuidField,
} from '../src/index.js';

const decimal = decimalCodec(Big);

class OrderPlacedEvent extends ModelEvent<Order> {
  static readonly payload = z.object({ total: decimal });
  readonly total: Big;

  constructor(id: ShardedId<Order>, total: Big) {
    super(id.toString(), Order);
    this.total = total;
  }
}

/** An order with a total of any number of digits. */
class Order extends Model<Order, ShardedId<Order>, 'PLACED'> {
  readonly total: Big;
  readonly pieces: number;

  constructor(fields: New<Order>) {
    super(fields);
    this.total = fields.total;
    this.pieces = fields.pieces;
  }

  static place(total: Big, pieces: number, now: Date): Order {
    const id = ShardedId.generate(Order, ShardIdentifier.of(0, 0));
    return new Order({ id, state: 'PLACED', createdDate: now, total, pieces }).emit(
      new OrderPlacedEvent(id, total),
    );
  }

  grow(by: Big): Order {
    return this.copy({ total: this.total.plus(by) }, new OrderPlacedEvent(this.id, by));
  }
}

const place = z.object({ total: decimal, pieces: z.int() });

class OutOfStockError extends Error {
  readonly code = 'out-of-stock';
}

class PlaceOrderAction extends Action<z.output<typeof place>, Order> {
  static readonly params = place;
  static readonly result = Order;

  protected async perform(_principal: Principal, { total, pieces }: z.output<typeof place>): Promise<Order> {
    if (pieces > 100) throw new OutOfStockError('Only 100 are left');
    return this.plan().add(Order.place(total, pieces, this.clock.now()));
  }
}

const grow = z.object({ id: shardedIdCodec(Order), by: decimal });

class GrowOrderAction extends Action<z.output<typeof grow>, Order> {
  static readonly params = grow;
  static readonly result = Order;
  readonly #orders: Repository<Order>;

  constructor(orders: Repository<Order>) {
    super(systemClock);
    this.#orders = orders;
  }

  protected async perform(_principal: Principal, { id, by }: z.output<typeof grow>): Promise<Order> {
    return this.plan().update((await this.#orders.getById(id)).grow(by));
  }
}

const orderSchema = z
  .object({ id: z.uuid(), total: z.string(), pieces: z.int(), version: z.int() })
  .meta({ id: 'Order' });

function replyOf({ id, total, pieces, version }: Order) {
  const body = { id: id.value, total: total.toFixed(), pieces, version };
  return { body, resource: { address: `/orders/${id.value}`, version } };
}

/** A service of orders in memory. */
export function orderApi(options: Partial<HttpApiOptions> = {}): {
  readonly api: HttpApi;
  readonly databases: DatabaseRegistry;
  readonly principals: readonly string[];
} {
  const config = parseFrameworkConfig({
    framework: {
      namespace: 'com.example.orders',
      sharding: {
        'default-shard': { group: 0, member: 0 },
        groups: [
          {
            group: 0,
            name: 'all',
            members: [
              {
                member: 0,
                name: 'only',
                configs: { 'primary-config': { 'jdbc-url': 'postgres://127.0.0.1:1/x' } },
              },
            ],
          },
        ],
      },
    },
  });
  const databases = openDatabases(config.sharding, memory({ server: new MemoryServer(config.sharding) }));
  const orders = new MemoryRepository({ model: Order, databases });
  const executor = new ActionExecutor({
    namespace: config.namespace,
    databases,
    repositories: [orders],
    actions: [new PlaceOrderAction(systemClock), new GrowOrderAction(orders)],
  });
  const principals: string[] = [];
  const path = z.object({ id: uuidField });
  const versioned = { model: Order, answer: orderSchema, versioned: true } as const;
  const total = decimalField((text) => new Big(text));
  const problems = ['order-not-found', 'stale-record', 'shard-unavailable', 'outcome-unknown'];
  const routes = [
    route.post(
      '/orders',
      {
        ...versioned,
        summary: 'Place an order',
        action: PlaceOrderAction,
        body: z.strictObject({ total, pieces: z.int() }),
        answers: { 201: 'The order' },
        problems: ['out-of-stock'],
      },
      async ({ body, principal, execute }) => {
        principals.push(principal.name);
        const reply = replyOf(await execute(PlaceOrderAction, body));
        return { ...reply, status: 201, location: reply.resource.address };
      },
    ),
    route.post(
      '/orders/{id}/grow',
      {
        ...versioned,
        summary: 'Grow an order',
        action: GrowOrderAction,
        path,
        body: z.strictObject({ by: total }),
        problems,
      },
      async ({ path: { id }, body, execute, idOf }) =>
        replyOf(await execute(GrowOrderAction, { id: idOf(Order, id), ...body })),
    ),
    route.get('/orders/{id}', { ...versioned, summary: 'Read an order', path, problems }, async (call) =>
      replyOf(await orders.getById(call.idOf(Order, call.path.id))),
    ),
    route.get(
      '/orders',
      {
        summary: 'List orders',
        query: z.strictObject({ state: z.enum(['PLACED']) }),
        answer: pageOf(orderSchema),
      },
      async () => ({ body: { items: [], next: null } }),
    ),
    ...healthRoutes({ databases }),
  ];
  const api = new HttpApi({
    name: 'orders',
    info: { title: 'Orders', version: '1.0.0' },
    problems: {
      'out-of-stock': { status: 409, title: 'There is not enough of it' },
      'order-not-found': { status: 404, title: 'The order does not exist' },
    },
    routes,
    executor,
    databases,
    ...options,
  });
  return { api, databases, principals };
}
