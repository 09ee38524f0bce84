// An id names its shard. An action changes one shard: if its plan needs two, it is refused, and nothing is written.
import {
  Action,
  ActionExecutor,
  CrossShardException,
  Model,
  type New,
  ShardIdentifier,
  ShardedId,
  openDatabases,
  systemClock,
} from '@framework/core';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';

const [north, south] = [ShardIdentifier.of(0, 0), ShardIdentifier.of(1, 0)];

class Shelf extends Model<Shelf, ShardedId<Shelf>, 'OPEN'> {
  readonly books: number;

  constructor(fields: New<Shelf>) {
    super(fields);
    this.books = fields.books;
  }

  static of(shard: ShardIdentifier, books: number): Shelf {
    const id = ShardedId.generate(Shelf, shard);
    return new Shelf({ id, state: 'OPEN', createdDate: systemClock.now(), books });
  }

  put(books: number): Shelf {
    return this.copy({ books: this.books + books });
  }
}

const databases = openDatabases(memorySharding(north, south), memory());
const shelves = new MemoryRepository({ model: Shelf, databases });

interface Move {
  readonly from: ShardedId<Shelf>;
  readonly to: ShardedId<Shelf>;
}

class MoveBookAction extends Action<Move> {
  protected async perform(_principal: unknown, { from, to }: Move): Promise<void> {
    this.plan().update((await shelves.getById(from)).put(-1));
    this.plan().update((await shelves.getById(to)).put(1));
  }
}

const actions = [new MoveBookAction(systemClock)];
const executor = new ActionExecutor({ namespace: 'library', databases, repositories: [shelves], actions });
const you = { name: 'Grace' };
const novels = await shelves.put(Shelf.of(north, 9));
const poems = await shelves.put(Shelf.of(north, 5));
const travel = await shelves.put(Shelf.of(south, 2));

await executor.execute(you, MoveBookAction, { from: novels.id, to: poems.id });
try {
  await executor.execute(you, MoveBookAction, { from: novels.id, to: travel.id });
} catch (error) {
  if (!(error instanceof CrossShardException)) throw error;
  // To move a book between shards, write a saga.
  console.log(`${error.code}: ${error.shards.join(' and ')}`);
}
for (const shelf of await shelves.findAllByIds([novels.id, poems.id, travel.id]))
  console.log(`${shelf.books} books on ${String(shelf.id.resolveShardIdentifier())}`);

// Output:
// cross-shard: shard (0, 0) and shard (1, 0)
// 8 books on shard (0, 0)
// 6 books on shard (0, 0)
// 2 books on shard (1, 0)
