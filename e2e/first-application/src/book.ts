import { type Id, Model, ModelEvent, type New, type ShardIdentifier, ShardedId } from '@framework/core';
import * as z from 'zod';

export class Book extends Model<Book, ShardedId<Book>, 'LISTED'> {
  readonly title: string;
  readonly onShelf: number;

  /** Called with all fields, for a new book, for its next versions, and for every row that is read. */
  constructor(fields: New<Book>) {
    super(fields);
    this.title = fields.title;
    this.onShelf = fields.onShelf;
  }

  static add(shard: ShardIdentifier, title: string, copies: number, now: Date): Book {
    const id = ShardedId.generate(Book, shard);
    const book = new Book({ id, state: 'LISTED', createdDate: now, title, onShelf: copies });
    return book.emit(new BookAddedEvent(id, title));
  }

  lend(reader: string): Book {
    if (this.onShelf === 0) throw new NoCopyLeftError(this.title);
    return this.copy({ onShelf: this.onShelf - 1 }, new BookLentEvent(this.id, this.title, reader));
  }
}

export class BookAddedEvent extends ModelEvent<Book> {
  static readonly payload = z.object({ title: z.string() });
  readonly title: string;

  constructor(id: Id<Book>, title: string) {
    super(id.toString(), Book);
    this.title = title;
  }
}

export class BookLentEvent extends ModelEvent<Book> {
  static readonly payload = z.object({ title: z.string(), reader: z.string() });
  readonly title: string;
  readonly reader: string;

  constructor(id: Id<Book>, title: string, reader: string) {
    super(id.toString(), Book);
    this.title = title;
    this.reader = reader;
  }
}

export class NoCopyLeftError extends Error {
  constructor(title: string) {
    super(`All copies of ${title} are lent`);
  }
}
