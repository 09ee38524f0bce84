import { ShardIdentifier } from '@framework/core';
import type { DatabaseDelivery } from '@framework/core/adapter';
import {
  AggregationTemporality,
  type DataPoint,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { expect, onTestFinished, test } from 'vitest';

import { leftBehind, unhandledIn } from '../../core/test/left-behind.js';
import { Telemetry, observeDelivery, observePools } from '../src/index.js';

const shard = ShardIdentifier.of(0, 0);

/** A reader of figures that has no timer to be waited for. */
function sdk() {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 86_400_000 });
  const provider = new MeterProvider({ readers: [reader] });
  onTestFinished(() => provider.shutdown());
  return { provider, collect: () => reader.collect() };
}

/** A database whose answers a test gives. */
function answering(lag: () => Promise<readonly never[]>): DatabaseDelivery {
  const store = { cursors: { lag }, leases: { list: async () => [] } };
  return { store, shards: [shard], ready: async () => undefined } as unknown as DatabaseDelivery;
}

test('gauges of delivery leave no timer behind, whether databases answer, fail or hang', async () => {
  const answers = [
    (): Promise<readonly never[]> => Promise.resolve([]),
    (): Promise<readonly never[]> => Promise.reject(new Error('down')),
  ];
  let asked = 0;
  const { provider: meterProvider, collect } = sdk();
  const database = answering(() => answers[asked++ % 2]!());
  const end = observeDelivery({
    databases: { deliveries: () => [database] },
    meterProvider,
    intervalMs: 0,
    timeoutMs: 600_000,
  });
  expect(await leftBehind(collect, { rounds: 4 })).toEqual([]);
  expect(asked).toBe(5);
  end();
});

test('a database that fails after the figures were collected without it ends no process', async () => {
  const answer = Promise.withResolvers<readonly never[]>();
  const { provider: meterProvider, collect } = sdk();
  const database = answering(() => answer.promise);
  const end = observeDelivery({
    databases: { deliveries: () => [database] },
    meterProvider,
    intervalMs: 0,
    timeoutMs: 1,
  });
  const unhandled = await unhandledIn(async () => {
    await collect();
    answer.reject(new Error('down'));
  });
  expect(unhandled).toEqual([]);
  end();
});

test('a database whose second question fails while the first one hangs counts as one that has not answered', async () => {
  const answer = Promise.withResolvers<readonly never[]>();
  const store = {
    cursors: { lag: () => answer.promise },
    leases: { list: () => Promise.reject(new Error('down')) },
  };
  const database = { store, shards: [shard], ready: async () => undefined } as unknown as DatabaseDelivery;
  const { provider: meterProvider, collect } = sdk();
  const end = observeDelivery({ databases: { deliveries: () => [database] }, meterProvider, intervalMs: 0 });
  const unhandled = await unhandledIn(async () => {
    await collect();
    answer.reject(new Error('down, too'));
  });
  expect(unhandled).toEqual([]);
  end();
});

test('gauges that are ended leave nothing behind at the meter', async () => {
  const { provider: meterProvider, collect } = sdk();
  const database = answering(async () => []);
  let poolsAsked = 0;
  const left = await leftBehind(async () => {
    const ends = [
      observeDelivery({ databases: { deliveries: () => [database] }, meterProvider, intervalMs: 0 }),
      observePools({
        databases: {
          pools: () => {
            poolsAsked++;
            return [];
          },
        },
        meterProvider,
      }),
    ];
    await collect();
    for (const end of ends) end();
  });
  expect(left.filter((line) => line.includes('/telemetry/src/'))).toEqual([]);
  // Those of earlier rounds are not asked any more.
  expect(poolsAsked).toBe(4);
});

test('operations that repeat leave nothing behind, whether they succeed or fail', async () => {
  const { provider } = sdk();
  const telemetry = new Telemetry({ meterProvider: provider });
  const left = await leftBehind(async () => {
    const operation = { kind: 'execute', action: 'Deposit' } as const;
    await telemetry.observe(operation, async () => 'done');
    const failing = telemetry.observe(operation, () => Promise.reject(new TypeError('no')));
    await expect(failing).rejects.toThrow('no');
  });
  expect(left.filter((line) => line.includes('/telemetry/src/'))).toEqual([]);
});

test('errors with very many names are counted together from the thousand and first on', async () => {
  const { provider, collect } = sdk();
  const telemetry = new Telemetry({ meterProvider: provider });
  const fail = async (name: string): Promise<void> => {
    const error = Object.assign(new Error('no'), { name });
    await telemetry
      .observe({ kind: 'execute', action: 'Deposit' }, () => Promise.reject(error))
      .catch(() => undefined);
  };
  for (let number = 1; number <= 1_002; number++) await fail(`Error${number}`);
  await fail('Error1');
  const { resourceMetrics } = await collect();
  const points = resourceMetrics.scopeMetrics
    .flatMap(({ metrics }) => metrics)
    .filter(({ descriptor }) => descriptor.name === 'framework.execute.duration')
    .flatMap(({ dataPoints }) => dataPoints as readonly DataPoint<unknown>[]);
  const countOf = (type: string): unknown =>
    points.find(({ attributes }) => attributes['error.type'] === type)?.value;
  expect(points).toHaveLength(1_001);
  expect([countOf('_OTHER'), countOf('Error1'), countOf('Error1000'), countOf('Error1001')]).toMatchObject([
    { count: 2 },
    { count: 2 },
    { count: 1 },
    undefined,
  ]);
});
