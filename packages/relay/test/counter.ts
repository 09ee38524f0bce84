import {
  Action,
  ActionExecutor,
  type Clock,
  type DatabaseRegistry,
  type Id,
  Model,
  ModelEvent,
  type New,
  type Principal,
  type Repository,
  ShardIdentifier,
  ShardedId,
  instantCodec,
  openDatabases,
  shardedIdCodec,
} from '@framework/core';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';
import * as z from 'zod';

const shard: ShardIdentifier = ShardIdentifier.of(1, 2);

export class Counter extends Model<Counter, ShardedId<Counter>, 'OPEN'> {
  readonly value: number;

  constructor(fields: New<Counter>) {
    super(fields);
    this.value = fields.value;
  }

  increased(by: number): Counter {
    return this.copy({ value: this.value + by }, new CounterIncreasedEvent(this.id, by));
  }
}

export class CounterIncreasedEvent extends ModelEvent<Counter> {
  static readonly payload = z.object({ by: z.int() });
  readonly by: number;

  constructor(id: Id<Counter>, by: number) {
    super(id.toString(), Counter);
    this.by = by;
  }
}

/** Nothing changes a closed counter. */
export class CounterClosedEvent extends ModelEvent<Counter> {
  static readonly payload = z.object({ date: instantCodec });
  readonly date: Date;

  constructor(id: Id<Counter>, date: Date) {
    super(id.toString(), Counter);
    this.date = date;
  }
}

/** Opens a counter, which writes no event. */
class OpenCounterAction extends Action<undefined, Counter> {
  static readonly result = Counter;

  protected async perform(): Promise<Counter> {
    const id = ShardedId.generate(Counter, shard);
    return this.plan().add(new Counter({ id, state: 'OPEN', createdDate: this.clock.now(), value: 0 }));
  }
}

const increase = z.object({ id: shardedIdCodec(Counter), by: z.int() });
type Increase = z.infer<typeof increase>;

class IncreaseCounterAction extends Action<Increase, Counter> {
  static readonly params = increase;
  static readonly result = Counter;
  readonly #counters: Repository<Counter>;

  constructor(clock: Clock, counters: Repository<Counter>) {
    super(clock);
    this.#counters = counters;
  }

  protected async perform(_principal: Principal, { id, by }: Increase): Promise<Counter> {
    return this.plan().update((await this.#counters.getById(id)).increased(by));
  }
}

const principal: Principal = { name: 'test' };

/** An application with counters on one database in memory. */
export class Counters {
  readonly databases: DatabaseRegistry;
  readonly executor: ActionExecutor;

  constructor(clock: Clock, namespace = 'com.example') {
    this.databases = openDatabases(memorySharding(shard), memory({ clock }));
    const counters = new MemoryRepository({ model: Counter, databases: this.databases });
    this.executor = new ActionExecutor({
      namespace,
      databases: this.databases,
      repositories: [counters],
      actions: [new OpenCounterAction(clock), new IncreaseCounterAction(clock, counters)],
      clock,
    });
  }

  readonly open = async (): Promise<ShardedId<Counter>> =>
    (await this.executor.execute(principal, OpenCounterAction, undefined)).id;

  readonly increase = async (id: ShardedId<Counter>, by: number): Promise<void> => {
    await this.executor.execute(principal, IncreaseCounterAction, { id, by });
  };
}
