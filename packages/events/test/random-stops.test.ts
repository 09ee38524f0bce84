import { ShardUnavailableError } from '@framework/core';
import { seededRandom } from '@framework/testing';
import { expect, test } from 'vitest';
import {
  type AnyEventHandler,
  type BatchEventHandler,
  type EventEnvelope,
  FrameworkEventHandler,
} from '../src/index.js';
import { DepositedEvent, deposited } from './account.js';
import { type BenchProcess, DeliveryBench, handlerOf, shard } from './delivery-bench.js';

type Envelope = EventEnvelope<DepositedEvent>;

/** Short times and narrow limits, so that a process often stops in the middle of something. */
const settings = {
  leaseMs: 2_000,
  pollMaxMs: 200,
  blockedPollMs: 200,
  readMax: 5,
  batchMax: 2,
  concurrency: 3,
  stopTimeoutMs: 1_500,
  retry: { backoffBaseMs: 50, backoffMaxMs: 400 },
  outageBackoffMaxMs: 300,
};
const models = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
const rounds = 150;

/** What one handler does in all processes, and whether it was called in order. */
class Deliveries {
  readonly done = new Set<string>();
  readonly faults: string[] = [];
  readonly #work: () => Promise<void>;

  constructor(work: () => Promise<void>) {
    this.#work = work;
  }

  async handle(envelopes: readonly Envelope[]): Promise<void> {
    const together = new Set<string>();
    for (const { modelId, modelVersion, eventId } of envelopes) {
      const before = `${modelId}${modelVersion - 1}`;
      if (modelVersion > 1 && !this.done.has(before) && !together.has(before))
        this.faults.push(`${eventId} before ${before}`);
      together.add(eventId);
    }
    await this.#work();
    for (const { eventId } of envelopes) this.done.add(eventId);
  }
}

test.each(Array.from({ length: 24 }, (_item, index) => index + 1))(
  'with processes that stop or die at random during outages, every event is handled, in order per model (seed %i)',
  { tags: ['slow'] },
  async (seed) => {
    const random = seededRandom(seed);
    const bench = new DeliveryBench();
    let isCalm = false;
    const work = async (): Promise<void> => {
      if (random() < 0.3) await bench.clock.sleep(random() * 300);
      if (!isCalm && random() < 0.3) throw new ShardUnavailableError(shard, 'away');
    };
    const [single, waiting] = [new Deliveries(work), new Deliveries(work)];
    const start = (): BenchProcess => bench.start(handlersOf(single, waiting), settings);
    const processes = [start(), start()];
    const versions = new Map<string, number>();
    for (let round = 0; round < rounds; round++) {
      const model = models[Math.floor(random() * models.length)]!;
      for (let count = Math.floor(random() * 4); count > 0; count--) {
        const version = (versions.get(model) ?? 0) + 1;
        versions.set(model, version);
        bench.database.commit(deposited(model, version));
      }
      await bench.clock.advance(random() * 200);
      if (random() < 0.9) continue;
      const [ended] = processes.splice(Math.floor(random() * 2), 1, start());
      if (random() < 0.7) void ended!.delivery.stop();
      else ended!.access.kill();
    }
    isCalm = true;
    await bench.clock.advance(60_000);
    const all = [...versions].flatMap(([model, last]) =>
      Array.from({ length: last }, (_item, index) => `${model}${index + 1}`),
    );
    for (const { done, faults } of [single, waiting]) {
      expect(faults).toEqual([]);
      expect(all.filter((id) => !done.has(id))).toEqual([]);
    }
    expect(bench.database.blocked.size).toBe(0);
  },
);

/** A handler of single events, and one that waits when its batches fail. */
function handlersOf(single: Deliveries, waiting: Deliveries): readonly AnyEventHandler[] {
  class Batches implements BatchEventHandler<DepositedEvent> {
    readonly event = DepositedEvent;

    handleBatch(envelopes: readonly Envelope[]): Promise<void> {
      return waiting.handle(envelopes);
    }
  }
  FrameworkEventHandler({ name: 'waiting', startFrom: 'beginning', whenBatchFails: 'wait' })(Batches);
  return [handlerOf({ name: 'single' }, (envelope) => single.handle([envelope])), new Batches()];
}
