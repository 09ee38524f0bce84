import {
  Action,
  type Clock,
  FrameworkAction,
  Model,
  ModelEvent,
  type New,
  type Principal,
  ShardIdentifier,
  ShardedId,
} from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import * as z from 'zod';
import type { MemoryRepository } from '../../src/memory/index.js';

const shard = ShardIdentifier.of(0, 0);

/** A book of a library: on its shelf, or with a reader. */
export class Book extends Model<Book, ShardedId<Book>, 'SHELVED' | 'LENT'> {
  readonly title: string;

  constructor(fields: New<Book>) {
    super(fields);
    this.title = fields.title;
  }

  static acquire(title: string): Book {
    return new Book({
      id: ShardedId.generate(Book, shard),
      state: 'SHELVED',
      createdDate: new Date(0),
      title,
    });
  }

  lend(readerId: string): Book {
    if (this.state === 'LENT') throw new Error('The book is already lent');
    return this.copy({ state: 'LENT' }, new BookLentEvent(this.id.value, readerId));
  }

  giveBack(): Book {
    return this.copy({ state: 'SHELVED' });
  }
}

/** A book went to a reader. */
export class BookLentEvent extends ModelEvent<Book> {
  static readonly payload = z.object({ readerId: z.string() });

  constructor(
    bookId: string,
    readonly readerId: string,
  ) {
    super(bookId, Book);
  }
}

/** A reader, with the number of books lent to them so far. */
export class Reader extends Model<Reader, ShardedId<Reader>, 'ACTIVE'> {
  readonly loanCount: number;

  constructor(fields: New<Reader>) {
    super(fields);
    this.loanCount = fields.loanCount;
  }

  static register(id: ShardedId<Reader> = Reader.newId(), loanCount: number = 0): Reader {
    return new Reader({ id, state: 'ACTIVE', createdDate: new Date(0), loanCount });
  }

  static newId(): ShardedId<Reader> {
    return ShardedId.generate(Reader, shard);
  }

  countLoan(): Reader {
    return this.copy({ loanCount: this.loanCount + 1 });
  }
}

/** Lends a book, or takes it back if it is already lent. */
@FrameworkAction()
export class LendOrReturnAction extends Action<{ readonly bookId: string; readonly readerId: string }> {
  constructor(
    clock: Clock,
    private readonly books: MemoryRepository<Book>,
  ) {
    super(clock);
  }

  protected async perform(
    _principal: Principal,
    { bookId, readerId }: { readonly bookId: string; readonly readerId: string },
  ): Promise<void> {
    const book = await this.books.getById(bookId);
    this.plan().update(book.state === 'LENT' ? book.giveBack() : book.lend(readerId));
  }
}

/** Counts a loan for a reader, who is registered with the first one. */
@FrameworkAction()
export class CountLoanAction extends Action<{ readonly readerId: string }> {
  constructor(
    clock: Clock,
    private readonly readers: MemoryRepository<Reader>,
  ) {
    super(clock);
  }

  protected async perform(_principal: Principal, { readerId }: { readonly readerId: string }): Promise<void> {
    const reader = await this.readers.findById(readerId);
    if (reader === undefined) this.plan().add(Reader.register(ShardedId.of(Reader, readerId), 1));
    else this.plan().update(reader.countLoan());
  }
}

/** Counts each loan once. */
@FrameworkEventHandler({ name: 'count-loans', startFrom: 'beginning' })
export class CountLoans implements EventHandler<BookLentEvent> {
  readonly event = BookLentEvent;

  async handle({ event }: EventEnvelope<BookLentEvent>, context: HandlerContext): Promise<void> {
    await context.execute(CountLoanAction, { readerId: event.readerId });
  }
}
