import { type Id, Model, ModelEvent, type New, type ShardIdentifier, ShardedId } from '@framework/core';
import * as z from 'zod';

/** A counter decides without side effects: a method returns the next version, with its event attached. */
export class Counter extends Model<Counter, ShardedId<Counter>, 'OPEN'> {
  readonly value: number;

  constructor(fields: New<Counter>) {
    super(fields);
    this.value = fields.value;
  }

  static open(shard: ShardIdentifier, now: Date): Counter {
    const id = ShardedId.generate(Counter, shard);
    return new Counter({ id, state: 'OPEN', createdDate: now, value: 0 });
  }

  increase(by: number): Counter {
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
