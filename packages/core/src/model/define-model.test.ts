import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { ShardedId } from '../id/id.js';
import { modelNameOf } from '../id/model-class.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { defineEvent, defineModel } from './define-model.js';
import { decodeEvent, encodePayload, eventTypeOf } from './model-event.js';

const amount = z.codec(z.string().regex(/^\d+$/), z.bigint(), { decode: BigInt, encode: String });

class Order extends defineModel('Order', {
  state: z.enum(['OPEN', 'PAID']),
  total: amount,
  note: z.string().min(1).optional(),
}) {
  static open(total: bigint, note?: string): Order {
    return new Order({ ...base(), total, note }).emit(new OrderOpenedEvent(id, { total }));
  }

  pay(): Order {
    return this.copy({ state: 'PAID' }, new OrderPaidEvent(this.id, { total: this.total, note: this.note }));
  }
}

class OrderOpenedEvent extends defineEvent(() => Order, { total: amount }) {}
class OrderPaidEvent extends defineEvent(() => Order, { total: amount, note: z.string().optional() }) {
  static readonly eventType = 'order-paid';
}

const id = ShardedId.generate(Order, ShardIdentifier.of(0, 0));
const base = () => ({ id, state: 'OPEN', createdDate: new Date(0) }) as const;

describe('a model whose fields are declared once', () => {
  test('has its fields, a durable name, versions and events, like any other model', () => {
    const paid = Order.open(5n, 'soon').pay();
    expect(paid).toBeInstanceOf(Order);
    expect(paid).toMatchObject({ id, state: 'PAID', version: 0, total: 5n, note: 'soon' });
    expect(paid.events.map((event) => eventTypeOf(event.constructor as never))).toEqual([
      'OrderOpenedEvent',
      'order-paid',
    ]);
    expect(modelNameOf(Order)).toBe('Order');
  });

  test.each([
    [{ total: -1n }, 'Order.total'],
    [{ total: 5 }, 'Order.total'],
    [{ total: undefined }, 'Order.total'],
    [{ note: '' }, 'Order.note'],
    [{ state: 'LOST' }, 'Order.state'],
  ])('refuses %o when it is made and when it is copied, and names the field', (fields, path) => {
    const given = { ...base(), total: 5n, ...fields } as never;
    const refusal = expect.objectContaining({
      code: 'invalid-model',
      message: expect.stringContaining(path),
    });
    expect(() => new Order(given)).toThrow(refusal);
    expect(() => Order.open(5n)['copy'](fields as never)).toThrow(refusal);
  });

  test.each(['id', 'version', 'createdDate', 'updatedDate', 'events'])(
    'cannot declare the field %s, which every model has',
    (field) => {
      const fields = { state: z.enum(['OPEN']), [field]: z.string() };
      expect(() => defineModel('Order', fields)).toThrow(`The field ${field} of Order`);
    },
  );

  test('cannot declare what is no schema, or works in one direction only', () => {
    expect(() => defineModel('Order', { state: z.enum(['OPEN']), total: 'bigint' as never })).toThrow(
      'The values of the field total of Order are declared by something that is not a schema of zod',
    );
    class Trimmed extends defineModel('Trimmed', {
      state: z.enum(['OPEN']),
      name: z.string().transform((text) => text.trim()),
    }) {}
    expect(() => new Trimmed({ ...base(), id: id as never, name: 'x' })).toThrow('use z.codec instead');
  });
});

describe('an event whose fields are declared once', () => {
  test('is written by its schemas and read back as an instance of its class', () => {
    const event = new OrderPaidEvent(id, { total: 5n, note: undefined });
    const json = encodePayload(event);
    expect(json).toBe('{"total":"5"}');
    const read = decodeEvent(OrderPaidEvent, { model: Order, modelId: id.value, payload: JSON.parse(json) });
    expect(read).toBeInstanceOf(OrderPaidEvent);
    expect(read).toMatchObject({ total: 5n, model: Order, modelId: id.value });
  });

  test.each(['modelId', 'model'])('cannot declare the field %s, which every event has', (field) => {
    expect(() => defineEvent(() => Order, { [field]: z.string() })).toThrow(`The field ${field} of an event`);
  });
});
