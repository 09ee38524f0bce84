import { Action, type Clock, type Principal, type Repository, shardedIdCodec } from '@framework/core';
import * as z from 'zod';
import { Book } from './book.ts';
import { branches, shardOf } from './branches.ts';

const addParams = z.object({ branch: z.enum(branches), title: z.string(), copies: z.int().min(1) });
type AddParams = z.infer<typeof addParams>;

export class AddBookAction extends Action<AddParams, Book> {
  static readonly params = addParams;
  static readonly result = Book;

  protected async perform(_principal: Principal, { branch, title, copies }: AddParams): Promise<Book> {
    return this.plan().add(Book.add(shardOf(branch), title, copies, this.clock.now()));
  }
}

const lendParams = z.object({ bookId: shardedIdCodec(Book), reader: z.string() });
type LendParams = z.infer<typeof lendParams>;

export class LendBookAction extends Action<LendParams, Book> {
  static readonly params = lendParams;
  static readonly result = Book;
  readonly #books: Repository<Book>;

  constructor(clock: Clock, books: Repository<Book>) {
    super(clock);
    this.#books = books;
  }

  protected async perform(_principal: Principal, { bookId, reader }: LendParams): Promise<Book> {
    const book = await this.#books.getById(bookId);
    return this.plan().update(book.lend(reader));
  }
}
