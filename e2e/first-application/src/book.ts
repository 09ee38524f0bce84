import { type ShardIdentifier, ShardedId, defineEvent, defineModel } from '@framework/core';
import * as z from 'zod';

export class Book extends defineModel('Book', {
  state: z.enum(['LISTED']),
  title: z.string(),
  onShelf: z.int().min(0),
}) {
  static add(shard: ShardIdentifier, title: string, copies: number, now: Date): Book {
    const id = ShardedId.generate(Book, shard);
    const book = new Book({ id, state: 'LISTED', createdDate: now, title, onShelf: copies });
    return book.emit(new BookAddedEvent(id, { title }));
  }

  lend(reader: string): Book {
    const { id, title, onShelf } = this;
    if (onShelf === 0) throw new NoCopyLeftError(title);
    return this.copy({ onShelf: onShelf - 1 }, new BookLentEvent(id, { title, reader }));
  }
}

export class BookAddedEvent extends defineEvent(() => Book, { title: z.string() }) {}

export class BookLentEvent extends defineEvent(() => Book, { title: z.string(), reader: z.string() }) {}

export class NoCopyLeftError extends Error {
  constructor(title: string) {
    super(`All copies of ${title} are lent`);
  }
}
