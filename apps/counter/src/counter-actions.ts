import { Action, type Clock, type Id, type Principal, type ShardIdentifier } from '@framework/core';
import { Counter } from './counter.ts';

export class OpenCounterAction extends Action<{ readonly shard: ShardIdentifier }, Counter> {
  protected async perform(
    _principal: Principal,
    { shard }: { readonly shard: ShardIdentifier },
  ): Promise<Counter> {
    return this.plan().add(Counter.open(shard, this.clock.now()));
  }
}

interface Increase {
  readonly id: Id<Counter>;
  readonly by: number;
}

/** Reads a counter and stages its next version; the executor commits it with its event, or runs the action again. */
export class IncreaseCounterAction extends Action<Increase, Counter> {
  readonly #counters: { getById(id: Id<Counter>): Promise<Counter> };

  constructor(clock: Clock, counters: { getById(id: Id<Counter>): Promise<Counter> }) {
    super(clock);
    this.#counters = counters;
  }

  protected async perform(_principal: Principal, { id, by }: Increase): Promise<Counter> {
    const counter = await this.#counters.getById(id);
    return this.plan().update(counter.increase(by));
  }
}
