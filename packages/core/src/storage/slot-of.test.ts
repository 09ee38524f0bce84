import { expect, test } from 'vitest';

import { slotOf } from './change-set.js';

test.each([
  ['', 9],
  ['a', 0],
  ['00000000-0000-0000-0000-000000000000', 6],
  ['01a20098-e5a5-7000-8000-c4b13c4486dc', 4],
  ['ada/Übung', 4],
  ['𝒳', 2],
])('the events of the model %j keep the slot that they have in existing logs', (id, slot) => {
  expect(slotOf(id, 16)).toBe(slot);
});
