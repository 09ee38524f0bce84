import { ConfigurationError, ShardIdentifier, ShardUnavailableError, openDatabases } from '@framework/core';
import { MemoryFaults, memory, memorySharding } from '@framework/testing/memory';
import { metrics } from '@opentelemetry/api';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { pino } from 'pino';
import { afterEach, expect, test } from 'vitest';

import { ServiceMetrics } from './service-metrics.js';

const logger = pino({ level: 'silent' });
const [near, far] = [ShardIdentifier.of(0, 0), ShardIdentifier.of(1, 0)];
const ended: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0)) await end();
  metrics.disable();
});

test('the figures of a database that is down are gone from what Prometheus reads', async () => {
  const { faults, figures } = await served({ port: 0, intervalMs: 100 });
  await expect.poll(figures).toEqual(['framework_database_up 1', 'framework_database_up 1']);
  faults.inject(({ shard }) =>
    shard === far ? Promise.reject(new ShardUnavailableError(far, 'it is down')) : undefined,
  );
  await expect.poll(figures).toEqual(['framework_database_up 1', 'framework_database_up 0']);
});

test('leases of a database that is down are not shown with their last values', async () => {
  const { faults, databases, read } = await served({ port: 0, intervalMs: 100 });
  for (const { store } of databases.deliveries())
    await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
  const shards = async (): Promise<readonly string[]> =>
    [...(await read()).matchAll(/^framework_delivery_pending\{framework_shard="([^"]*)"/gm)].map(
      ([, shard = '']) => shard,
    );
  await expect.poll(shards).toEqual(['0,0', '1,0']);
  faults.inject(({ shard }) =>
    shard === far ? Promise.reject(new ShardUnavailableError(far, 'it is down')) : undefined,
  );
  await expect.poll(shards).toEqual(['0,0']);
});

test('a registered SDK gets the same gauges as Prometheus', async () => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 });
  const provider = new MeterProvider({ readers: [reader] });
  metrics.setGlobalMeterProvider(provider);
  ended.push(() => provider.shutdown());
  const { read } = await served({ port: 0 });
  const { resourceMetrics } = await reader.collect();
  const names = resourceMetrics.scopeMetrics.flatMap((scope) =>
    scope.metrics.map(({ descriptor }) => descriptor.name),
  );
  expect(names).toContain('framework.database.up');
  expect(await read()).toContain('framework_database_up');
});

test('without a port nothing is served', async () => {
  const { url } = await served({});
  expect(url).toBeUndefined();
});

test.each([
  [{ prot: 9464 }, /framework\.metrics\.prot/],
  [{ port: '9464' }, /framework\.metrics\.port.*whole number/],
  [{ port: 1, intervalMs: 1 }, /framework\.metrics\.interval-ms.*100/],
  [{ port: 1, host: '' }, /framework\.metrics\.host.*empty/],
])('the section %j is refused with the path of its fault', (section, message) => {
  const make = (): ServiceMetrics => new ServiceMetrics({ metrics: section });
  expect(make).toThrow(ConfigurationError);
  expect(make).toThrow(message);
});

/** Serves the metrics of two databases in memory. */
async function served(section: Readonly<Record<string, unknown>>) {
  const faults = new MemoryFaults();
  const databases = openDatabases(memorySharding(near, far), memory({ faults }));
  const service = new ServiceMetrics({ metrics: section });
  const url = await service.start(databases, logger);
  ended.push(() => service.stop());
  const read = async (): Promise<string> => (await fetch(url ?? '')).text();
  const figures = async (): Promise<readonly string[]> =>
    [...(await read()).matchAll(/^(framework_database_up)\S* (\d)$/gm)].map(
      ([, name, value]) => `${name} ${value}`,
    );
  return { faults, databases, url, read, figures };
}
