import { describe, expect, test } from 'vitest';

import { textsOf } from './event-row.js';

describe('the texts of a row of the log', () => {
  const row = {
    id: 'i',
    ordinal: '0',
    action_id: 'a',
    namespace: 'n',
    started_date: 's',
    created_date: 'c',
    payload: '"€"',
    action_params: '"é"',
    headers: '{}',
  };
  const size = Buffer.byteLength('i 0 a n s c "€" "é" {}');

  test.each([
    [size - 1, false],
    [size, true],
    [size + 1, true],
  ])('have payload and params up to %d bytes, not characters: %s', (bytesMax, isWhole) => {
    const { texts, heldBytes } = textsOf(row, bytesMax);
    expect([texts.at(-2)?.includes('€'), texts.at(-1)]).toEqual([isWhole, String(size)]);
    expect(heldBytes).toBe(Buffer.byteLength(texts.at(-2) ?? ''));
  });

  test.each([
    [9, '{}'],
    [10, '{"h":"€"}'],
  ])('keep headers of ten bytes if %d are allowed: %s', (bytesMax, headers) => {
    const { texts } = textsOf({ ...row, headers: '{"h":"€"}' }, bytesMax + 1);
    expect(texts.at(-2)?.endsWith(headers)).toBe(true);
  });
});
