import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { Wallet } from '../../test/wallet.js';
import { ShardedId, shardedIdCodec } from '../id/id.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { paramsCodec } from './action-recorder.js';

const text = '018f3c00-0000-7abc-8040-000000000000';
const walletId = ShardedId.of(Wallet, text);

describe('without a schema', () => {
  const codec = paramsCodec('TestAction', undefined);
  const encode = (params: unknown) => codec.record(params).json;

  test.each([
    [undefined, 'null'],
    [null, 'null'],
    ['text', '"text"'],
    [{ shard: ShardIdentifier.of(1, 2) }, '{"shard":{"group":1,"member":2}}'],
    [{ walletId, lines: [{ count: 1 }], none: undefined }, `{"walletId":"${text}","lines":[{"count":1}]}`],
  ])('writes %o as JSON', (params, json) => {
    expect(encode(params)).toBe(json);
  });

  const cyclic: { self?: unknown } = {};
  cyclic.self = cyclic;

  test.each<[string, unknown, string]>([
    ['a value that contains itself', cyclic, 'TestAction params.self'],
    ['a function', (): number => 1, 'TestAction params'],
    ['a field that is a function', { f: (): number => 1 }, 'TestAction params.f'],
    ['a symbol', { s: Symbol('s') }, 'TestAction params.s'],
    ['a set', { roles: new Set(['reader']) }, 'TestAction params.roles'],
    ['a map', { roles: new Map() }, 'TestAction params.roles'],
    ['a date', { at: new Date(0) }, 'TestAction params.at'],
    ['a bigint', { amount: 5n }, 'TestAction params.amount'],
    ['a number that JSON does not have', { rate: Number.NaN }, 'TestAction params.rate'],
    ['an infinite number', { rate: Number.POSITIVE_INFINITY }, 'TestAction params.rate'],
    ['undefined in a list', { lines: [1, undefined] }, 'TestAction params.lines[1]'],
    ['an instance of a class', { url: new URL('https://example.com') }, 'TestAction params.url'],
    ['half of a surrogate pair', { note: '\ud83d' }, 'TestAction params.note'],
    ['text that the database cannot hold', { note: '\u0000' }, 'TestAction params.note'],
  ])('refuses %s, and says where it is and what to do', (_what, params, path) => {
    expect(() => encode(params)).toThrow(
      expect.objectContaining({
        code: 'unstorable-value',
        path: expect.stringContaining(path),
        message: expect.stringContaining('static readonly params = …'),
        cause: expect.objectContaining({ code: 'unstorable-value' }),
      }),
    );
  });

  test('throws the error of a param that throws when it is read', () => {
    const failure = new Error('not yet');
    const params = {
      get amount(): never {
        throw failure;
      },
    };
    expect(() => encode(params)).toThrow(failure);
  });
});

describe('with a schema', () => {
  const schema = z.object({ walletId: shardedIdCodec(Wallet), lines: z.array(z.object({ count: z.int() })) });
  const codec = paramsCodec('TestAction', schema);
  const encode = (params: unknown) => codec.record(params).json;

  test('writes the params as the schema encodes them', () => {
    expect(encode({ walletId, lines: [{ count: 1 }] })).toBe(`{"walletId":"${text}","lines":[{"count":1}]}`);
  });

  test('names every param that does not fit, with its path', () => {
    expect(() => encode({ walletId: text, lines: [{ count: 1 }, { count: 1.5 }] })).toThrow(
      expect.objectContaining({
        code: 'invalid-params',
        issues: [
          { path: 'walletId', message: expect.any(String) },
          { path: 'lines.1.count', message: expect.any(String) },
        ],
        cause: expect.any(z.ZodError),
      }),
    );
  });

  test('names a param that the schema would leave out', () => {
    expect(() => encode({ walletId, lines: [], note: 'a' })).toThrow(
      expect.objectContaining({
        code: 'invalid-params',
        issues: [{ path: 'note', message: expect.any(String) }],
      }),
    );
    expect(() => encode({ walletId, lines: [{ count: 1 }, { count: 2, note: 'a' }] })).toThrow(
      expect.objectContaining({
        code: 'invalid-params',
        issues: [{ path: 'lines.1.note', message: expect.any(String) }],
      }),
    );
    expect(encode({ walletId, lines: [], note: undefined })).toBe(`{"walletId":"${text}","lines":[]}`);
  });

  test('names a param that the schema would leave out even if the params are a list', () => {
    const line = z.object({ count: z.int() });
    const lines = Array.from({ length: 11 }, (_line, count) => ({ count }));
    const ofList = paramsCodec('TestAction', z.array(line));
    const encodeList = (params: unknown) => ofList.record(params).json;
    expect(() => encodeList([...lines, { count: 1, note: 'a' }])).toThrow(
      expect.objectContaining({ issues: [{ path: '11.note', message: expect.any(String) }] }),
    );
    expect(() => encodeList([...lines, { count: 1.5 }])).toThrow(
      expect.objectContaining({ issues: [{ path: '11.count', message: expect.any(String) }] }),
    );
  });

  test('writes the fields of an instance of a class, which is never read back as one', () => {
    class Line {
      readonly count = 1;
    }
    expect(encode({ walletId, lines: [new Line()] })).toBe(`{"walletId":"${text}","lines":[{"count":1}]}`);
  });

  test('says so when there are no params', () => {
    expect(() => encode(undefined)).toThrow(
      expect.objectContaining({
        code: 'invalid-params',
        issues: [{ path: '', message: expect.any(String) }],
      }),
    );
  });

  test.each([
    ['has a one-way transform', z.object({ note: z.string().transform((note) => note.trim()) })],
    ['is asynchronous', z.object({ note: z.string().refine(async () => true) })],
  ])('refuses a schema that %s, and says what to use', (_what, oneWay) => {
    expect(() => paramsCodec('TestAction', oneWay).record({ note: 'a' })).toThrow(
      expect.objectContaining({
        code: 'unstorable-value',
        path: 'TestAction params',
        message: expect.stringMatching(/z\.codec|synchronous/),
      }),
    );
  });

  test('gives each attempt a new value, as the schema reads it', () => {
    const trimmed = z.object({ names: z.array(z.string().trim()) });
    const given = { names: [' ann ', 'bob'] };
    const { next } = paramsCodec('TestAction', trimmed).record(given);
    for (const _attempt of [1, 2, 3]) {
      const params = next() as typeof given;
      expect(params).toEqual({ names: ['ann', 'bob'] });
      params.names.pop();
    }
    expect(given.names).toEqual([' ann ', 'bob']);
  });

  test('gives each attempt a value of its own, even if it is the default of the schema', () => {
    const withDefault = paramsCodec(
      'TestAction',
      z.object({
        fees: z
          .object({ steps: z.array(z.int()) })
          .optional()
          .default({ steps: [10, 20] }),
      }),
    );
    for (const _request of [1, 2]) {
      const { next } = withDefault.record({});
      for (const _attempt of [1, 2]) {
        const params = next() as { readonly fees: { readonly steps: number[] } };
        expect(params.fees.steps).toEqual([10, 20]);
        params.fees.steps.pop();
      }
    }
  });

  test('gives all attempts the same value, even if a default is another one each time', () => {
    let count = 0;
    const counted = z.object({
      number: z
        .int()
        .optional()
        .default(() => count++),
    });
    const { next } = paramsCodec('TestAction', counted).record({});
    const given = next();
    expect([next(), next()]).toEqual([given, given]);
  });

  test('names a param that the schema would leave out of one item, although another item has it', () => {
    const line = z.discriminatedUnion('kind', [
      z.object({ kind: z.literal('card') }),
      z.object({ kind: z.literal('bank'), iban: z.string() }),
    ]);
    const lines = [
      { kind: 'card', iban: 'lost' },
      { kind: 'bank', iban: 'kept' },
    ];
    expect(() => paramsCodec('TestAction', z.object({ lines: z.array(line) })).record({ lines })).toThrow(
      expect.objectContaining({ issues: [{ path: 'lines.0.iban', message: expect.any(String) }] }),
    );
  });
});
