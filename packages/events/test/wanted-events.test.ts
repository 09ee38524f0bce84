import { describe, expect, test } from 'vitest';
import {
  type EventEnvelope,
  type EventHandler,
  type EventHandlerOptions,
  FrameworkEventHandler,
} from '../src/index.js';
import { ClosedEvent, DepositedEvent, deposited } from './account.js';
import { DeliveryBench, operatorOf } from './delivery-bench.js';

const closed = (modelId: string, version: number) =>
  deposited(modelId, version, { type: 'ClosedEvent', payload: { reason: 'done' } });

class WriteStatement implements EventHandler<DepositedEvent | ClosedEvent> {
  static readonly handlerName = 'write-statement';
  static readonly options: EventHandlerOptions = { startFrom: 'beginning' };
  readonly event = [DepositedEvent, ClosedEvent];
  readonly lines: string[] = [];

  async handle({ event, modelId }: EventEnvelope<DepositedEvent | ClosedEvent>): Promise<void> {
    if (event instanceof ClosedEvent) this.lines.push(`${modelId} was closed`);
    else this.lines.push(`${event.amount} was deposited to ${modelId}`);
  }
}

/** Two versions of one handler: the wider one wants one more class of events. */
class Versions {
  readonly seen: string[] = [];
  failing = true;

  get narrower(): EventHandler<DepositedEvent> {
    const { seen } = this;
    class Narrower implements EventHandler<DepositedEvent> {
      readonly event = DepositedEvent;
      async handle({ eventId }: { readonly eventId: string }): Promise<void> {
        seen.push(`narrower ${eventId}`);
      }
    }
    FrameworkEventHandler({ name: 'project', startFrom: 'beginning' })(Narrower);
    return new Narrower();
  }

  get wider(): EventHandler<DepositedEvent | ClosedEvent> {
    const handle = async ({ eventId }: { readonly eventId: string }): Promise<void> => {
      if (this.failing) throw new Error('not yet');
      this.seen.push(`wider ${eventId}`);
    };
    class Wider implements EventHandler<DepositedEvent | ClosedEvent> {
      readonly event = [DepositedEvent, ClosedEvent];
      readonly handle = handle;
    }
    FrameworkEventHandler({ name: 'project', startFrom: 'beginning' })(Wider);
    return new Wider();
  }
}

test('a handler of several event classes receives the events of a model in order', async () => {
  const bench = new DeliveryBench();
  const handler = new WriteStatement();
  bench.database.commit(deposited('a', 1), deposited('b', 1), closed('a', 2));
  bench.start([handler]);
  await bench.clock.advance(300);
  expect(handler.lines.filter((line) => /\ba\b/.test(line))).toEqual([
    '1 was deposited to a',
    'a was closed',
  ]);
  expect(handler.lines).toHaveLength(3);
});

/** The wider version has failed to handle an event that only it wants, and was rolled back an hour ago. */
async function rolledBack() {
  const bench = new DeliveryBench();
  const versions = new Versions();
  bench.database.commit(closed('a', 1));
  const before = bench.start([versions.wider]);
  await bench.clock.advance(300);
  await before.delivery.stop();
  const process = bench.start([versions.narrower]);
  bench.database.commit(deposited('a', 2), deposited('b', 1));
  await bench.clock.advance(3_600_000);
  return { bench, versions, process, operator: operatorOf(bench) };
}

describe('a blocked event that the running handler version does not want', () => {
  test('is kept, uses up no attempt, and delays only its model', async () => {
    const { bench, versions } = await rolledBack();
    expect(versions.seen).toEqual(['narrower b1']);
    expect(bench.database.blockedOf('project')).toMatchObject([
      { event: { id: 'a1' }, attempts: 1, dead: false },
    ]);
  });

  test('is reported once with a remedy, and shown to operators', async () => {
    const { process, operator } = await rolledBack();
    expect(process.errors.map(String)).toEqual([
      expect.stringMatching(/project .*ClosedEvent a1 of Account a.*deploy.*skip/is),
    ]);
    const { items } = await operator.findBlocked({ eventId: 'a1' });
    expect(items[0]?.error).toMatch(/ClosedEvent.*deploy.*skip/is);
    expect(process.failures).toEqual([]);
  });

  test('is handled first when a version that wants it returns', async () => {
    const { bench, versions, process } = await rolledBack();
    await process.delivery.stop();
    versions.failing = false;
    bench.start([versions.wider]);
    await bench.clock.advance(310_000);
    expect(versions.seen).toEqual(['narrower b1', 'wider a1', 'wider a2']);
    expect(bench.database.blocked.size).toBe(0);
  });

  test('is skipped only by a filter with dead: false', async () => {
    const { bench, versions, operator } = await rolledBack();
    const waiting = { handler: 'project', eventType: 'ClosedEvent', dead: false };
    expect(await operator.skip({ handler: 'project', eventType: 'ClosedEvent' })).toBe(0);
    expect(await operator.skip(waiting, { dryRun: true })).toBe(1);
    expect(await operator.skip(waiting)).toBe(1);
    expect(await operator.replay({ ...waiting, eventType: 'DepositedEvent' })).toBe(0);
    await bench.clock.advance(310_000);
    expect(versions.seen).toEqual(['narrower b1', 'narrower a2']);
    expect(bench.database.blocked.size).toBe(0);
  });
});
