// A handler fails until it has no attempts left. An operator finds the dead letter, and replays it when the cause is gone.
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
import { Delivery, DeliveryOperator, type EventEnvelope, type EventHandler } from '@framework/events';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';
import { setTimeout } from 'node:timers/promises';
import * as z from 'zod';

const shard = ShardIdentifier.of(0, 0);
let isPrinterOn = false;
const { promise: printed, resolve: tellPrinted } = Promise.withResolvers<void>();

class Parcel extends Model<Parcel, ShardedId<Parcel>, 'PACKED'> {
  pack(): Parcel {
    return this.emit(new ParcelPackedEvent(this.id.value, Parcel));
  }
}

class ParcelPackedEvent extends ModelEvent<Parcel> {
  static readonly payload = z.object({});
}

class PackParcelAction extends Action<object, Parcel> {
  protected async perform(): Promise<Parcel> {
    const id = ShardedId.generate(Parcel, shard);
    return this.plan().add(new Parcel({ id, state: 'PACKED', createdDate: this.clock.now() }).pack());
  }
}

class PrintLabel implements EventHandler<ParcelPackedEvent> {
  static readonly handlerName = 'print-label';
  static readonly options = { retry: { attemptsMax: 2, backoffBaseMs: 10 } };
  readonly event = ParcelPackedEvent;

  async handle({ attempt }: EventEnvelope<ParcelPackedEvent>): Promise<void> {
    if (!isPrinterOn) throw new Error('the printer is off');
    console.log(`label printed at attempt ${attempt}`);
    tellPrinted();
  }
}

const databases = openDatabases(memorySharding(shard), memory());
const repositories = [new MemoryRepository({ model: Parcel, databases })];
const actions = [new PackParcelAction(systemClock)];
const executor = new ActionExecutor({ namespace: 'shop', databases, repositories, actions });
const delivery = new Delivery({
  databases,
  executor,
  handlers: [new PrintLabel()],
  onAttemptFailed: ({ attempt, willRetry }) => console.log(`attempt ${attempt} failed, retry: ${willRetry}`),
});
delivery.start();
await delivery.started();
await executor.execute({ name: 'Grace' }, PackParcelAction, {});

// Somebody looks for dead letters from time to time.
const operator = new DeliveryOperator(databases);
let letter;
do {
  await setTimeout(10);
  [letter] = (await operator.findBlocked({ dead: true })).items;
} while (letter === undefined);
console.log(`${letter.handler}: ${letter.error}`);

isPrinterOn = true;
await operator.replay({ handler: PrintLabel.handlerName });
await printed;
await delivery.stop();

// Output:
// attempt 1 failed, retry: true
// attempt 2 failed, retry: false
// print-label: Error: the printer is off
// label printed at attempt 1
