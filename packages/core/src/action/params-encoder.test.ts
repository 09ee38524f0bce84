import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { Wallet } from '../../test/wallet.js';
import { ShardedId } from '../id/sharded-id.js';
import { shardedIdCodec } from '../id/id-codec.js';
import { paramsEncoder } from './params-encoder.js';

const text = '018f3c00-0000-7abc-8040-000000000000';
const walletId = ShardedId.of(Wallet, text);

describe('without a schema', () => {
  const encode = paramsEncoder('TestAction', undefined);

  test.each([
    [undefined, 'null'],
    [null, 'null'],
    ['text', '"text"'],
    [
      { walletId, amount: 5n, at: new Date(0), none: undefined },
      `{"walletId":"${text}","amount":"5","at":"1970-01-01T00:00:00.000Z"}`,
    ],
  ])('writes %o as JSON', (params, json) => {
    expect(encode(params)).toBe(json);
  });

  const cyclic: { self?: unknown } = {};
  cyclic.self = cyclic;

  test.each([
    ['a value that holds itself', cyclic],
    ['a function', (): number => 1],
    ['text that the database cannot hold', { note: '\u0000' }],
  ])('refuses %s', (_what, params) => {
    expect(() => encode(params)).toThrow(expect.objectContaining({ code: 'unstorable-value' }));
  });
});

describe('with a schema', () => {
  const schema = z.object({ walletId: shardedIdCodec(Wallet), lines: z.array(z.object({ count: z.int() })) });
  const encode = paramsEncoder('TestAction', schema);

  test('writes the params as the schema says', () => {
    expect(encode({ walletId, lines: [{ count: 1 }] })).toBe(`{"walletId":"${text}","lines":[{"count":1}]}`);
  });

  test('names every param that does not fit by its path', () => {
    expect(() => encode({ walletId: text, lines: [{ count: 1 }, { count: 1.5 }] })).toThrow(
      expect.objectContaining({
        code: 'invalid-params',
        issues: [
          { path: 'walletId', message: expect.any(String) },
          { path: 'lines.1.count', message: expect.any(String) },
        ],
      }),
    );
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
    expect(() => paramsEncoder('TestAction', oneWay)({ note: 'a' })).toThrow(
      expect.objectContaining({
        code: 'unstorable-value',
        path: 'TestAction params',
        message: expect.stringMatching(/z\.codec|synchronous/),
      }),
    );
  });
});
