import { describe, expect, test } from 'vitest';

import { idempotencyKey } from './idempotency-key.js';

function keyOf(key: string): string | undefined {
  return idempotencyKey(new Headers({ 'idempotency-key': key }));
}

describe('an idempotency key', () => {
  test.each(['!', '~', 'a b', 'x'.repeat(255), `!${' '.repeat(253)}~`])('is read: %j', (key) => {
    expect(keyOf(key)).toBe(key);
  });

  test.each(['', 'x'.repeat(256), 'é', 'a\u007f', 'a\tb', '\u00ff'])('is refused: %j', (key) => {
    expect(() => keyOf(key)).toThrow(
      expect.objectContaining({
        code: 'bad-request',
        faults: [expect.objectContaining({ pointer: 'header/Idempotency-Key' })],
      }),
    );
  });

  test('that is long differs from one that differs only at its end', () => {
    const long = 'k'.repeat(254);
    expect(keyOf(`${long}1`)).not.toBe(keyOf(`${long}2`));
  });

  test('is undefined without the header', () => {
    expect(idempotencyKey(new Headers())).toBeUndefined();
  });
});
