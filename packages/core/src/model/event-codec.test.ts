import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { Order, OrderShippedEvent } from '../../test/order.js';
import { Wallet, WalletDepositedEvent } from '../../test/wallet.js';
import { ShardedId } from '../id/id.js';
import { ModelEvent, currentPayload, decodeEvent, encodePayload } from './model-event.js';

const id = ShardedId.of(Wallet, '018f3c00-0000-7abc-8000-000000000000');

/** An event of one field, whose schema a test chooses. */
function eventWith(schema: z.ZodType, note: unknown): ModelEvent<Order> {
  class OrderNotedEvent extends ModelEvent<Order> {
    static readonly payload = z.object({ note: schema });
    readonly note = note;
  }
  return new OrderNotedEvent('order-1', Order);
}

describe('encodePayload', () => {
  test('writes exactly the own fields of the event, by its schema', () => {
    expect(encodePayload(new WalletDepositedEvent(id, 5n, 105n))).toBe('{"amount":"5","newBalance":"105"}');
    expect(encodePayload(new OrderShippedEvent(ShardedId.of(Order, id.value)))).toBe('{}');
  });

  test('writes only the own fields, even with a schema that keeps or refuses unknown ones', () => {
    class StrictEvent extends ModelEvent<Order> {
      static readonly payload = z.strictObject({ note: z.string() });
      readonly note: string = 'a';
    }
    class LooseEvent extends ModelEvent<Order> {
      static readonly payload = z.looseObject({});
      readonly note: string = 'b';
    }
    expect(encodePayload(new StrictEvent('order-1', Order))).toBe('{"note":"a"}');
    expect(encodePayload(new LooseEvent('order-1', Order))).toBe('{"note":"b"}');
  });

  test('refuses a field that the payload schema lacks, even an undefined one', () => {
    class ForgetfulEvent extends ModelEvent<Order> {
      static readonly payload = z.object({});
      constructor(readonly note: string | undefined) {
        super('order-1', Order);
      }
    }
    for (const note of ['a', undefined]) {
      expect(() => encodePayload(new ForgetfulEvent(note))).toThrow(
        expect.objectContaining({ code: 'unstorable-value', path: 'ForgetfulEvent.note' }),
      );
    }
  });

  test('leaves out the private fields of an event', () => {
    class DiscreetEvent extends ModelEvent<Order> {
      static readonly payload = z.object({});
      readonly #note = 'a';
      get note(): string {
        return this.#note;
      }
    }
    expect(encodePayload(new DiscreetEvent('order-1', Order))).toBe('{}');
  });

  test('refuses a nested field that the payload schema lacks', () => {
    const schema = z.array(z.object({ text: z.string() }));
    expect(() => encodePayload(eventWith(schema, [{ text: 'a', author: 'b' }]))).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path: 'OrderNotedEvent.note[0].author' }),
    );
  });

  test('refuses an instance of a class that would be read back as a plain object', () => {
    class Note {
      readonly text = 'a';
    }
    expect(() => encodePayload(eventWith(z.object({ text: z.string() }), new Note()))).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path: 'OrderNotedEvent.note' }),
    );
  });

  test('refuses a value that contains itself, even with a recursive schema', () => {
    interface Chain {
      next?: Chain | undefined;
    }
    const chain: z.ZodType<Chain> = z.lazy(() => z.object({ next: chain.optional() }));
    const endless: Chain = {};
    endless.next = endless;
    expect(() => encodePayload(eventWith(chain, endless))).toThrow(
      expect.objectContaining({
        code: 'unstorable-value',
        path: expect.stringContaining('OrderNotedEvent'),
      }),
    );
  });

  test('refuses a value nested too deeply for a recursive schema', () => {
    interface Chain {
      readonly next?: Chain | undefined;
    }
    const chain: z.ZodType<Chain> = z.lazy(() => z.object({ next: chain.optional() }));
    let deep: Chain = {};
    for (let level = 0; level < 50_000; level++) deep = { next: deep };
    expect(() => encodePayload(eventWith(chain, deep))).toThrow(
      expect.objectContaining({
        code: 'unstorable-value',
        path: 'OrderNotedEvent',
        cause: expect.any(RangeError),
      }),
    );
  });

  test('leaves out optional fields that are not set', () => {
    expect(encodePayload(eventWith(z.string().optional(), undefined))).toBe('{}');
  });

  test.each([
    ['a field of another type', z.string(), 5],
    ['a missing field', z.string(), undefined],
    ['a bigint without a codec', z.bigint(), 5n],
    ['a date without a codec', z.date(), new Date(0)],
    ['a number that JSON does not have', z.unknown(), Number.NaN],
    ['text that the database cannot hold', z.string(), 'a\u0000b'],
  ])('refuses %s and names its path', (_what, schema, note) => {
    expect(() => encodePayload(eventWith(schema, note))).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path: 'OrderNotedEvent.note' }),
    );
  });

  test('says why a field does not fit its schema', () => {
    expect(() => encodePayload(eventWith(z.string().max(1, 'too long'), 'ab'))).toThrow(
      expect.objectContaining({ reason: 'too long', cause: expect.any(z.ZodError) }),
    );
  });

  test.each([
    ['has a one-way transform', z.string().transform((text) => text.length), 3],
    ['has a preprocess', z.preprocess(String, z.string()), 'a'],
    ['is asynchronous', z.string().refine(async () => true), 'a'],
  ])('refuses a schema that %s, and says what to use', (_what, schema, note) => {
    expect(() => encodePayload(eventWith(schema, note))).toThrow(
      expect.objectContaining({
        code: 'unstorable-value',
        path: 'OrderNotedEvent',
        message: expect.stringMatching(/z\.codec|synchronous/),
        cause: expect.any(Error),
      }),
    );
  });

  test.each([new Error('the codec is broken'), new RangeError('Invalid time value')])(
    'names the event whose codec throws: %s',
    (broken) => {
      const schema = z.codec(z.string(), z.string(), {
        decode: (text) => text,
        encode: () => {
          throw broken;
        },
      });
      expect(() => encodePayload(eventWith(schema, 'a'))).toThrow(
        expect.objectContaining({ code: 'unstorable-value', path: 'OrderNotedEvent', cause: broken }),
      );
    },
  );

  test('refuses a field that is undefined if the schema could not read the event without it', () => {
    expect(() => encodePayload(eventWith(z.string().or(z.undefined()), undefined))).toThrow(
      expect.objectContaining({ code: 'unstorable-value', path: 'OrderNotedEvent.note' }),
    );
  });
});

describe('decodeEvent', () => {
  test('returns an event of the class, equal to the one written', () => {
    const event = new WalletDepositedEvent(id, 5n, 105n);
    const payload: unknown = JSON.parse(encodePayload(event));
    const decoded = decodeEvent(WalletDepositedEvent, { model: Wallet, modelId: id.value, payload });
    expect(decoded).toBeInstanceOf(WalletDepositedEvent);
    expect(decoded).toEqual(event);
    expect(decoded.amount).toBe(5n);
  });

  test('does not call the constructor', () => {
    let calls = 0;
    class CountedEvent extends ModelEvent<Order> {
      static readonly payload = z.object({});
      constructor() {
        super('order-1', Order);
        calls++;
      }
    }
    decodeEvent(CountedEvent, { model: Order, modelId: 'order-1', payload: {} });
    expect(calls).toBe(0);
  });

  test.each([
    ['newBalance', { amount: '5' }],
    ['amount', { amount: 5, newBalance: '105' }],
    ['', null],
    ['', 'text'],
  ])("refuses to read a payload that does not fit at '%s'", (path, payload) => {
    expect(() => decodeEvent(WalletDepositedEvent, { model: Wallet, modelId: id.value, payload })).toThrow(
      expect.objectContaining({ code: 'unreadable-event', path, cause: expect.any(z.ZodError) }),
    );
  });

  test('names the event that it cannot read, the field, and what to do', () => {
    const event = { id: 'event-1', model: Wallet, modelId: 'wallet-1', payload: { amount: '5' } };
    expect(() => decodeEvent(WalletDepositedEvent, event)).toThrow(
      expect.objectContaining({
        eventType: 'WalletDepositedEvent',
        eventId: 'event-1',
        modelId: 'wallet-1',
        message: expect.stringMatching(
          /^Event event-1 \(WalletDepositedEvent\) of model wallet-1 cannot be read: its payload\.newBalance .* optional .* upcast/,
        ),
      }),
    );
  });
});

describe('a payload of an earlier version of its class', () => {
  class OrderPricedEvent extends ModelEvent<Order> {
    static readonly payload = z.object({ orderId: z.string(), cents: z.int() });
    static upcast(payload: object, { modelId }: { readonly modelId: string }): unknown {
      return 'euros' in payload ? { orderId: modelId, cents: Number(payload.euros) * 100 } : payload;
    }
    readonly orderId = this.modelId;
    readonly cents: number = 250;
  }
  const earlier = { model: Order, modelId: 'order-1', payload: { euros: 2 } };

  test('is read in its current form', () => {
    expect(decodeEvent(OrderPricedEvent, earlier)).toMatchObject({ orderId: 'order-1', cents: 200 });
    expect(currentPayload(OrderPricedEvent, earlier)).toEqual({ orderId: 'order-1', cents: 200 });
  });

  test('is distinguished from a current one, which stays unchanged', () => {
    const event = new OrderPricedEvent('order-1', Order);
    const today = { ...earlier, payload: JSON.parse(encodePayload(event)) as unknown };
    expect(decodeEvent(OrderPricedEvent, today)).toEqual(event);
    expect(currentPayload(OrderShippedEvent, today)).toBe(today.payload);
  });
});
