import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { bigintCodec, decimalCodec, instantCodec } from './exact-json.js';

class Decimal {
  constructor(readonly digits: string) {}

  toFixed(): string {
    return this.digits;
  }
}

const decimal = decimalCodec(Decimal);

test.each<[string, z.ZodType, unknown, string]>([
  ['an instant', instantCodec, new Date('2026-01-02T03:04:05.006Z'), '2026-01-02T03:04:05.006Z'],
  ['a bigint', bigintCodec, -(10n ** 30n), '-1000000000000000000000000000000'],
  ['a decimal', decimal, new Decimal('-25.50'), '-25.50'],
])('%s is read as it was written', (_what, codec, value, text) => {
  expect(z.encode(codec, value)).toBe(text);
  expect(z.decode(codec, text)).toEqual(value);
});

describe('a value of the wrong kind', () => {
  test.each<[string, z.ZodType, string]>([
    ['a day', instantCodec, '2026-01-02'],
    ['an instant in another zone', instantCodec, '2026-01-02T03:04:05+01:00'],
    ['a decimal', bigintCodec, '1.5'],
    ['nothing', bigintCodec, ''],
    ['an exponent', decimal, '1e3'],
    ['a point without digits', decimal, '5.'],
  ])('is not read: %s', (_what, codec, text) => {
    expect(z.safeDecode(codec, text).success).toBe(false);
  });

  test.each<[string, z.ZodType, unknown]>([
    ['an invalid date', instantCodec, new Date(Number.NaN)],
    ['a date whose year has more than four digits', instantCodec, new Date(8.64e15)],
    ['a number', bigintCodec, 5],
    ['a text', decimal, '5'],
    ['a decimal without plain digits', decimal, new Decimal('Infinity')],
  ])('is not written: %s', (_what, codec, value) => {
    expect(z.safeEncode(codec, value).success).toBe(false);
  });
});
