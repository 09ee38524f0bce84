import {
  AccessDeniedError,
  type DatabaseRegistry,
  EntityNotFoundError,
  type Principal,
  type Repository,
  type ShardedId,
} from '@framework/core';
import { Big } from 'big.js';
import * as z from 'zod';

import {
  type Route,
  cursorNote,
  decimalField,
  limitField,
  pageOf,
  route,
  textField,
  uuidField,
} from '../../src/index.js';
import { CancelOrderAction, Order, OrderError, PlaceOrderAction } from './order.js';

/** A total, exact as written. Ten characters can mean a billion digits, so the exponent has a limit. */
const totalField = decimalField((text) => {
  const total = new Big(text);
  if (Math.abs(total.e) > 20) throw new OrderError('invalid-total', 'A total must be below 1e21');
  return total;
});

const orderSchema = z
  .object({
    id: z.uuid(),
    state: z.enum(['PLACED', 'CANCELLED']),
    total: z.string().meta({ example: '25.50' }),
    version: z.int(),
  })
  .meta({ id: 'Order' });

function resourceOf({ id, state, total, version }: Order): z.input<typeof orderSchema> {
  return { id: id.value, state, total: total.toFixed(), version };
}

function replyOf(order: Order) {
  const { id, version } = order;
  return { body: resourceOf(order), resource: { address: `/orders/${id.value}`, version } };
}

function clerksOnly({ roles = [] }: Principal): void {
  if (!roles.includes('clerk')) throw new AccessDeniedError('Only clerks may list orders');
}

const path = z.object({ id: uuidField });
const versioned = { model: Order, answer: orderSchema, versioned: true } as const;
const shardProblems = ['stale-record', 'shard-unavailable', 'outcome-unknown'];

/** Placing, cancelling, reading and listing orders. */
export function orderRoutes(orders: Repository<Order>, databases: DatabaseRegistry): readonly Route[] {
  const ownOrder = async (principal: Principal, id: ShardedId<Order>): Promise<Order> => {
    const order = await orders.getById(id);
    if (order.customer !== principal.name) throw new EntityNotFoundError('Order', id.value);
    return order;
  };
  return [
    route.post(
      '/orders',
      {
        ...versioned,
        summary: 'Place an order',
        action: PlaceOrderAction,
        body: z.strictObject({ total: totalField }),
        answers: { 201: 'The order; `Location` has its address' },
        problems: ['invalid-total', ...shardProblems],
      },
      async ({ body, execute }) => {
        const reply = replyOf(await execute(PlaceOrderAction, body));
        return { ...reply, status: 201, location: reply.resource.address };
      },
    ),
    route.post(
      '/orders/{id}/cancel',
      {
        ...versioned,
        summary: 'Cancel an order',
        action: CancelOrderAction,
        checksVersion: true,
        path,
        problems: ['order-not-found', 'order-cancelled', 'precondition-failed', ...shardProblems],
      },
      async ({ path: { id }, expectedVersions, execute, idOf }) => {
        const params = { id: idOf(Order, id), ...(expectedVersions && { expectedVersions }) };
        return replyOf(await execute(CancelOrderAction, params));
      },
    ),
    route.get(
      '/orders/{id}',
      { ...versioned, summary: 'Read an order', path, problems: ['order-not-found', 'shard-unavailable'] },
      async ({ path: { id }, principal, idOf }) => replyOf(await ownOrder(principal, idOf(Order, id))),
    ),
    route.get(
      '/orders',
      {
        summary: 'List orders',
        query: z.strictObject({
          limit: limitField,
          cursor: textField.optional().meta({ description: cursorNote }),
        }),
        model: Order,
        shards: () => databases.shards,
        guard: clerksOnly,
        answer: pageOf(orderSchema),
        problems: ['forbidden', 'shard-unavailable'],
      },
      async ({ query: { limit, cursor } }) => {
        const { items, next } = await orders.findPage({ limit, orderBy: 'createdDate', after: cursor });
        return { body: { items: items.map(resourceOf), next: next ?? null } };
      },
    ),
  ];
}
