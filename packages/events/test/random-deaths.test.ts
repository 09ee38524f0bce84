import { seededRandom } from '@framework/testing';
import { expect, test } from 'vitest';
import { deposited } from './account.js';
import { type BenchProcess, DeliveryBench, handlerOf } from './delivery-bench.js';

test.each([1, 2, 3, 4, 5, 6, 7, 8])(
  'with processes that die at random, every event is handled, in order per model (seed %i)',
  { tags: ['slow'] },
  async (seed) => {
    const random = seededRandom(seed);
    const bench = new DeliveryBench();
    const first = new Map<string, number[]>();
    const start = (): BenchProcess => {
      let self: BenchProcess | undefined;
      const handler = handlerOf({ name: 'one' }, async ({ modelId, modelVersion }) => {
        if (self?.access.dead === true) return new Promise(() => undefined);
        const versions = first.get(modelId) ?? [];
        first.set(modelId, versions);
        if (!versions.includes(modelVersion)) versions.push(modelVersion);
        if (random() < 0.05) throw new Error('now and then');
        if (random() < 0.2) await bench.clock.sleep(random() * 200);
      });
      self = bench.start([handler], { leaseMs: 3_000 });
      return self;
    };
    const processes = [start(), start(), start()];
    const models = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
    const versions = new Map<string, number>();
    for (let round = 0; round < 60; round++) {
      for (const model of models) {
        if (random() < 0.5) continue;
        const version = (versions.get(model) ?? 0) + 1;
        versions.set(model, version);
        bench.database.commit(deposited(model, version));
      }
      processes[0]!.executor.committed();
      await bench.clock.advance(random() * 500);
      if (round % 10 !== 9) continue;
      const victim = Math.floor(random() * 3);
      processes[victim]!.access.kill();
      processes[victim] = start();
    }
    await bench.clock.advance(600_000);
    for (const [model, last] of versions) {
      expect(first.get(model)).toEqual(Array.from({ length: last }, (_item, index) => index + 1));
    }
    expect(bench.database.blocked.size).toBe(0);
  },
);
