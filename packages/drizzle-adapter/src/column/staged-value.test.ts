import { numeric, pgTable } from 'drizzle-orm/pg-core';
import { expect, test } from 'vitest';

import { stagedValue } from './column-type.js';

const table = pgTable('staged', {
  free: numeric('free'),
  unscaled: numeric('unscaled', { scale: 2 }),
  whole: numeric('whole', { precision: 3 }),
  hundreds: numeric('hundreds', { precision: 5, scale: -2 }),
  money: numeric('money', { precision: 5, scale: 2 }),
});

test.each<[keyof (typeof table)['_']['columns'], string, string]>([
  ['free', '01.50', '1.50'],
  ['unscaled', '1.5', '1.5'],
  ['whole', '12.000', '12'],
  ['hundreds', '12300.000', '12300'],
  ['money', '-.5', '-0.50'],
])('a staged decimal of the column %s reads as PostgreSQL will return it', (column, sent, read) => {
  expect(stagedValue(table[column])?.(sent)).toBe(read);
});
