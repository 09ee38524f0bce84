import {
  Action,
  type Clock,
  type Principal,
  type Repository,
  type ShardIdentifier,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';
import { Counter } from './counter.ts';

export class OpenCounterAction extends Action<{ readonly shard: ShardIdentifier }, Counter> {
  static readonly result = Counter;

  protected async perform(
    _principal: Principal,
    { shard }: { readonly shard: ShardIdentifier },
  ): Promise<Counter> {
    return this.plan().add(Counter.open(shard, this.clock.now()));
  }
}

const increase = z.object({ id: shardedIdCodec(Counter), by: z.int() });
type Increase = z.infer<typeof increase>;

/** Reads a counter and stages its next version; the executor commits it with its event, or runs the action again. */
export class IncreaseCounterAction extends Action<Increase, Counter> {
  static readonly params = increase;
  static readonly result = Counter;
  readonly #counters: Repository<Counter>;

  constructor(clock: Clock, counters: Repository<Counter>) {
    super(clock);
    this.#counters = counters;
  }

  protected async perform(_principal: Principal, { id, by }: Increase): Promise<Counter> {
    const counter = await this.#counters.getById(id);
    return this.plan().update(counter.increase(by));
  }
}
