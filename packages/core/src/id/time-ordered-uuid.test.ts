import { validate, version } from 'uuid';
import { describe, expect, test } from 'vitest';
import { timeOrderedUuid } from './time-ordered-uuid.js';

describe('a time-ordered UUID', () => {
  test('is one of version 7, differs from all others, and sorts behind those made before', () => {
    const ids = Array.from({ length: 20_000 }, () => timeOrderedUuid());
    expect(ids.every((id) => validate(id) && version(id) === 7)).toBe(true);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.toSorted()).toEqual(ids);
  });

  test('carries the time at which it was made', () => {
    const beforeMs = Date.now();
    const ms = Number.parseInt(timeOrderedUuid().replaceAll('-', '').slice(0, 12), 16);
    expect(ms).toBeGreaterThanOrEqual(beforeMs);
    expect(ms).toBeLessThanOrEqual(Date.now());
  });
});
