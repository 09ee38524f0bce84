import { modelColumns } from '@framework/drizzle-adapter';
import { integer, pgTable } from 'drizzle-orm/pg-core';
import { Counter } from './counter.ts';

/** A column for each field of a counter. */
export const counters = pgTable('counters', { ...modelColumns(Counter), value: integer('value').notNull() });
