import { ShardIdentifier } from '@framework/core';
import {
  Delivery,
  DeliveryOperator,
  type EventEnvelope,
  type EventHandler,
  type EventHandlerOptions,
} from '@framework/events';
import { EventEmitter, once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { IncreaseCounterAction, OpenCounterAction } from './counter-actions.ts';
import { CounterIncreasedEvent } from './counter.ts';
import { openCounters } from './open-counters.ts';

/** Another system, which refuses as many calls as it is told to. */
class Board extends EventEmitter {
  refusals = 0;

  announce(text: string): void {
    if (this.refusals-- > 0) throw new Error('the board is away');
    console.log(text);
    this.emit('announced');
  }
}

class AnnounceIncrease implements EventHandler<CounterIncreasedEvent> {
  static readonly handlerName = 'announce-increase';
  static readonly options: EventHandlerOptions = {
    startFrom: 'beginning',
    retry: { attemptsMax: 2, backoffBaseMs: 10 },
  };
  readonly event = CounterIncreasedEvent;
  readonly #board: Board;

  constructor(board: Board) {
    this.#board = board;
  }

  async handle({ event, attempt }: EventEnvelope<CounterIncreasedEvent>): Promise<void> {
    this.#board.announce(`increased by ${event.by}, announced at attempt ${attempt}`);
  }
}

const { databases, executor, ready } = openCounters(process.env['DATABASE_URL']);
await ready();
const board = new Board();
const delivery = new Delivery({
  databases,
  executor,
  handlers: [new AnnounceIncrease(board)],
  onAttemptFailed: ({ attempt, willRetry }) => {
    console.log(`attempt ${attempt} failed, ${willRetry ? 'it is retried' : 'it is a dead letter'}`);
    if (!willRetry) board.emit('given up');
  },
});
delivery.start();
await delivery.started();

const you = { name: 'reader' };
const { id } = await executor.execute(you, OpenCounterAction, { shard: ShardIdentifier.of(0, 0) });

// One call fails: the event is retried.
board.refusals = 1;
const announced = once(board, 'announced');
await executor.execute(you, IncreaseCounterAction, { id, by: 5 });
await announced;

// Both attempts fail: the event is a dead letter, until somebody replays it.
board.refusals = 2;
const givenUp = once(board, 'given up');
await executor.execute(you, IncreaseCounterAction, { id, by: 13 });
await givenUp;
const announcedLater = once(board, 'announced');
const operator = new DeliveryOperator(databases);
// The hook is called just before the dead letter is stored.
while ((await operator.replay({ handler: AnnounceIncrease.handlerName })) === 0) await setTimeout(50);
await announcedLater;

await delivery.stop();
await databases.close();
