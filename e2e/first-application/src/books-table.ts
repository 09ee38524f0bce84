import { modelColumns } from '@framework/drizzle-adapter';
import { integer, pgTable, text } from 'drizzle-orm/pg-core';
import { Book } from './book.ts';

export const books = pgTable('books', {
  ...modelColumns(Book), // id, state, version, created_date, updated_date
  title: text('title').notNull(),
  onShelf: integer('on_shelf').notNull(),
});
