// Only type-checked: what must compile, and after each @ts-expect-error what must not.
import type { ActionClass } from '@framework/core';
import type {
  BatchEventHandler,
  BlockedFilter,
  BlockedRow,
  DeliveryOperator,
  EventEnvelope,
  EventHandler,
  HandlerContext,
} from '../src/index.js';
import { ClosedEvent, DepositedEvent } from './account.js';

type IsAny<T> = 0 extends 1 & T ? true : false;
type Same<A, B> = IsAny<A> extends true ? false : [A, B] extends [B, A] ? true : false;

/** Compiles only for `true`. */
declare function holds<Claim extends true>(claim?: Claim): Claim;

declare const NotifyAction: ActionClass<{ readonly text: string }, number>;

export class OneHandler implements EventHandler<DepositedEvent> {
  readonly event = DepositedEvent;

  async handle({ event }: EventEnvelope<DepositedEvent>, context: HandlerContext): Promise<void> {
    holds<Same<typeof event, DepositedEvent>>();
    const result = await context.execute(NotifyAction, { text: `${event.amount}` }, { key: '1' });
    holds<Same<typeof result, number>>();
    // @ts-expect-error the context makes the idempotency key
    await context.execute(NotifyAction, { text: '' }, { idempotencyKey: 'mine' });
    // @ts-expect-error an execution with a key cannot span shards
    await context.execute(NotifyAction, { text: '' }, { allowCrossShard: true });
    // @ts-expect-error params of another action
    await context.execute(NotifyAction, { amount: 1 });
  }
}

export class TwoHandler implements EventHandler<DepositedEvent | ClosedEvent> {
  readonly event = [DepositedEvent, ClosedEvent];

  async handle({ event }: EventEnvelope<DepositedEvent | ClosedEvent>): Promise<void> {
    holds<Same<typeof event, DepositedEvent | ClosedEvent>>();
  }
}

export class AllHandler implements BatchEventHandler<undefined> {
  readonly event = 'all';

  async handleBatch([first]: readonly EventEnvelope<undefined>[]): Promise<void> {
    holds<Same<typeof first, EventEnvelope<undefined> | undefined>>();
  }
}

export class WrongClass implements EventHandler<DepositedEvent> {
  // @ts-expect-error the class of another event
  readonly event = ClosedEvent;

  async handle(): Promise<void> {}
}

export class WrongSelection implements EventHandler<DepositedEvent> {
  // @ts-expect-error all events have no common type
  readonly event = 'all';

  async handle(): Promise<void> {}
}

export async function deadLettersOf(
  operator: DeliveryOperator,
  handler: string,
): Promise<readonly BlockedRow[]> {
  const filter: BlockedFilter = { handler, dead: true };
  const { items } = await operator.findBlocked(filter);
  return items;
}
