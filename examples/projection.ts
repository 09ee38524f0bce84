// A handler keeps a projection of the events: who has which book now.
import {
  Action,
  ActionExecutor,
  Model,
  ModelEvent,
  ShardIdentifier,
  ShardedId,
  openDatabases,
  systemClock,
} from '@framework/core';
import { Delivery, type EventEnvelope, type EventHandler } from '@framework/events';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';
import { setTimeout } from 'node:timers/promises';
import * as z from 'zod';

class Book extends Model<Book, ShardedId<Book>, 'LISTED'> {
  lend(reader: string): Book {
    return this.copy({}, new BookLentEvent(this.id, reader));
  }
}

class BookLentEvent extends ModelEvent<Book> {
  static readonly payload = z.object({ reader: z.string() });
  readonly reader: string;

  constructor(id: ShardedId<Book>, reader: string) {
    super(id.value, Book);
    this.reader = reader;
  }
}

interface Loan {
  readonly id: ShardedId<Book>;
  readonly reader: string;
}

class LendBookAction extends Action<Loan, Book> {
  protected async perform(_principal: unknown, { id, reader }: Loan): Promise<Book> {
    const book = await books.getById(id);
    return this.plan().update(book.lend(reader));
  }
}

/** The projection. In an application it is a table or a search index of its own. */
const readerOf = new Map<string, string>();

class ProjectReader implements EventHandler<BookLentEvent> {
  static readonly handlerName = 'project-reader';
  static readonly options = { startFrom: 'beginning' } as const;
  readonly event = BookLentEvent;

  /** The events of one book come in order. If one of them comes twice, it writes the same again. */
  async handle({ event, modelId }: EventEnvelope<BookLentEvent>): Promise<void> {
    readerOf.set(modelId, event.reader);
  }
}

const shard = ShardIdentifier.of(0, 0);
const databases = openDatabases(memorySharding(shard), memory());
const books = new MemoryRepository({ model: Book, databases });
const actions = [new LendBookAction(systemClock)];
const executor = new ActionExecutor({ namespace: 'library', databases, repositories: [books], actions });
const delivery = new Delivery({ databases, executor, handlers: [new ProjectReader()] });
delivery.start();

const [dune, emma] = [ShardedId.generate(Book, shard), ShardedId.generate(Book, shard)];
for (const id of [dune, emma])
  await books.put(new Book({ id, state: 'LISTED', createdDate: systemClock.now() }));
await executor.execute({ name: 'librarian' }, LendBookAction, { id: dune, reader: 'Ada' });
await executor.execute({ name: 'librarian' }, LendBookAction, { id: emma, reader: 'Alan' });
await executor.execute({ name: 'librarian' }, LendBookAction, { id: dune, reader: 'Grace' });

// A projection follows the commits, usually after a few milliseconds.
while (readerOf.get(dune.value) !== 'Grace' || !readerOf.has(emma.value)) await setTimeout(1);
console.log(`Dune: ${readerOf.get(dune.value)}, Emma: ${readerOf.get(emma.value)}`);
await delivery.stop();

// Output:
// Dune: Grace, Emma: Alan
