import { ShardIdentifier, ShardUnavailableError, systemClock } from '@framework/core';
import type { DeliverableEvent, Operation, PoolUse } from '@framework/core/adapter';
import {
  MemoryAccess,
  MemoryDeliveryStore,
  MemoryDeliveryTables,
  MemoryFaults,
  modelKey,
} from '@framework/testing/memory';
import type { Attributes } from '@opentelemetry/api';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { afterEach, describe, expect, test, vi } from 'vitest';

import { type DeliveryGaugesOptions, Telemetry, observeDelivery, observePools } from '../src/index.js';

const ended: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0)) await end();
});

describe('the gauges of delivery', () => {
  test('show what each consumer has in each database', async () => {
    const [first, second] = [await databaseOf(0), await databaseOf(1)];
    await first.store.leases.renew('process-1', ['notify'], 60_000);
    const waiting = [deposited('b', 1), deposited('b', 2)];
    first.tables.commit(...waiting);
    first.tables.moveCursors(2);
    block(first.tables, waiting[0]!);
    first.tables.commit(deposited('a', 1));
    await second.store.cursors.setPaused('notify', true);
    const points = await observed([first, second])();
    const by = { 'messaging.consumer.group.name': 'notify', 'framework.shard': '0,0' };
    expect(points('framework.delivery.pending')[0]).toEqual([by, 1]);
    expect(points('framework.delivery.lag')[0]?.[1]).toBeGreaterThan(24 * 60 * 60);
    expect(points('framework.delivery.blocked')[0]).toEqual([by, 2]);
    expect(points('framework.delivery.dead_letters')[0]).toEqual([by, 1]);
    expect(values(points('framework.delivery.paused'))).toEqual([0, 1]);
    const states = points('framework.delivery.leases').map(([attributes, value]) => [
      attributes['framework.shard'],
      attributes['framework.lease.state'],
      value,
    ]);
    expect(states).toEqual([
      ['0,0', 'held', 4],
      ['0,0', 'expired', 0],
      ['0,0', 'free', 0],
      ['1,0', 'held', 0],
      ['1,0', 'expired', 0],
      ['1,0', 'free', 4],
    ]);
  });

  test('show what a server keeps for replication slots, also for one that nobody uses', async () => {
    const [database, other] = [await databaseOf(0), await databaseOf(1)];
    const slot = { name: 'framework_a', retainedBytes: 16_777_216, status: 'reserved', activePid: undefined };
    Object.assign(database.store, { retainedLogs: async () => [slot] });
    const points = await observed([database, other])();
    const by = { 'framework.shard': '0,0', 'framework.replication.slot': 'framework_a' };
    expect(points('framework.replication.retained')).toEqual([[by, 16_777_216]]);
  });

  test('tell leases of a process that has died from those that are held', async () => {
    const database = await databaseOf(0);
    await database.store.leases.renew('process-1', ['notify'], 1);
    await expect
      .poll(async () => values((await observed([database])())('framework.delivery.leases')))
      .toEqual([0, 4, 0]);
  });

  test('lack those of a database that is down, and only those', async () => {
    const [down, other] = [await databaseOf(0), await databaseOf(1)];
    const collect = observed([down, other]);
    expect(values((await collect())('framework.delivery.pending'))).toEqual([0, 0]);
    down.faults.inject(() => Promise.reject(new ShardUnavailableError(down.shard, 'it is down')));
    const points = await collect();
    expect(points('framework.delivery.pending').map(([{ 'framework.shard': shard }]) => shard)).toEqual([
      '1,0',
    ]);
    expect(points('framework.database.up')).toEqual([
      [{ 'framework.shard': '0,0' }, 0],
      [{ 'framework.shard': '1,0' }, 1],
    ]);
    down.faults.inject(undefined);
    expect(values((await collect())('framework.database.up'))).toEqual([1, 1]);
  });

  test('do not wait for a database that hangs, and ask it nothing more meanwhile', async () => {
    const [hanging, other] = [await databaseOf(0), await databaseOf(1)];
    const answered = Promise.withResolvers<void>();
    hanging.faults.inject(() => answered.promise);
    const collect = observed([hanging, other], { timeoutMs: 20 });
    const startedMs = performance.now();
    for (let count = 0; count < 3; count++)
      expect(new Set(values((await collect())('framework.database.up')))).toEqual(new Set([0, 1]));
    expect(performance.now() - startedMs).toBeLessThan(5_000);
    expect(hanging.questionCount()).toBe(1);
    answered.resolve();
    await expect.poll(async () => values((await collect())('framework.database.up'))).toEqual([1, 1]);
  });

  test('ask a database once for all who collect them within the interval', async () => {
    const database = await databaseOf(0);
    const sdks = [sdk(), sdk()];
    const meterProvider = sdks.map(({ provider }) => provider);
    observeDelivery({ databases: { deliveries: () => [database] }, meterProvider, intervalMs: 60_000 });
    for (const { collect } of [...sdks, ...sdks])
      expect(values((await collect())('framework.database.up'))).toEqual([1]);
    expect(database.questionCount()).toBe(1);
  });

  test('ask nothing once they are ended', async () => {
    const database = await databaseOf(0);
    const { provider: meterProvider, collect } = sdk();
    const end = observeDelivery({
      databases: { deliveries: () => [database] },
      meterProvider,
      intervalMs: 0,
    });
    await collect();
    end();
    expect((await collect())('framework.database.up')).toEqual([]);
    expect(database.questionCount()).toBe(1);
  });
});

test('the gauges of pools show how many connections are used and idle, and who waits', async () => {
  const pool: PoolUse = {
    name: 'db-1/global requests',
    max: 10,
    usedCount: 7,
    idleCount: 2,
    pendingCount: 3,
  };
  const { provider: meterProvider, collect } = sdk();
  const end = observePools({ databases: { pools: () => [pool] }, meterProvider });
  const points = await collect();
  const by = { 'db.client.connection.pool.name': pool.name };
  expect(points('db.client.connection.count')).toEqual([
    [{ ...by, 'db.client.connection.state': 'used' }, 7],
    [{ ...by, 'db.client.connection.state': 'idle' }, 2],
  ]);
  expect(points('db.client.connection.max')).toEqual([[by, 10]]);
  expect(points('db.client.connection.pending_requests')).toEqual([[by, 3]]);
  end();
  expect((await collect())('db.client.connection.max')).toEqual([]);
});

test('durations are recorded by each of several SDKs', async () => {
  const sdks = [sdk(), sdk()];
  const telemetry = new Telemetry({ meterProvider: sdks.map(({ provider }) => provider) });
  const execute: Operation = { kind: 'execute', action: 'DepositAction' };
  await telemetry.observe(execute, async () => undefined);
  for (const { collect } of sdks)
    expect((await collect())('framework.execute.duration')).toMatchObject([
      [{ 'framework.action': 'DepositAction' }, { count: 1 }],
    ]);
});

/** A database of one shard that knows the handler `notify`. */
async function databaseOf(group: number) {
  const shard = ShardIdentifier.of(group, 0);
  const tables = new MemoryDeliveryTables(systemClock, 4);
  const faults = new MemoryFaults();
  const store = new MemoryDeliveryStore(new MemoryAccess(tables, faults, shard));
  await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
  const questions = vi.spyOn(store.cursors, 'lag');
  const questionCount = (): number => questions.mock.calls.length;
  return { shard, shards: [shard], tables, faults, store, questionCount, ready: async () => undefined };
}

/** Observes databases, and asks them with each collection. */
function observed(
  deliveries: ReturnType<DeliveryGaugesOptions['databases']['deliveries']>,
  limits: Pick<DeliveryGaugesOptions, 'timeoutMs'> = {},
): () => Promise<Points> {
  const { provider: meterProvider, collect } = sdk();
  observeDelivery({ databases: { deliveries: () => deliveries }, meterProvider, intervalMs: 0, ...limits });
  return collect;
}

type Points = (metric: string) => readonly (readonly [Attributes, unknown])[];

/** An SDK, and how to collect what is measured now. */
function sdk(): { readonly provider: MeterProvider; readonly collect: () => Promise<Points> } {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.DELTA);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 });
  const provider = new MeterProvider({ readers: [reader] });
  ended.push(() => provider.shutdown());
  const collect = async (): Promise<Points> => {
    const { resourceMetrics } = await reader.collect();
    const all = resourceMetrics.scopeMetrics.flatMap(({ metrics }) => metrics);
    return (name) =>
      all
        .filter(({ descriptor }) => descriptor.name === name)
        .flatMap(({ dataPoints }) => dataPoints.map(({ attributes, value }) => [attributes, value] as const));
  };
  return { provider, collect };
}

function values(points: ReturnType<Points>): readonly unknown[] {
  return points.map(([, value]) => value);
}

function deposited(modelId: string, modelVersion: number): DeliverableEvent {
  const date = new Date('2026-01-01T00:00:00Z');
  return {
    id: `${modelId}${modelVersion}`,
    slot: 0,
    namespace: 'com.example',
    actionId: `action-${modelId}${modelVersion}`,
    actionName: 'DepositAction',
    actionParams: {},
    principal: 'alice',
    ordinal: 0,
    modelId,
    modelName: 'Account',
    modelVersion,
    type: 'DepositedEvent',
    payload: {},
    headers: {},
    startedDate: date,
    createdDate: date,
  };
}

/** Blocks the model of an event by a dead letter. */
function block(tables: MemoryDeliveryTables, event: DeliverableEvent): void {
  const { slot, modelName, modelId, modelVersion, ordinal } = event;
  const model = { handler: 'notify', slot, modelName, modelId, position: { modelVersion, ordinal }, event };
  const times = { attempts: 1, uncounted: 0, nextMs: 0, blockedMs: 0, serial: 0, doneIds: [] };
  const tried = { openAttempts: new Set<string>(), loneAttempts: new Set<string>() };
  tables.blocked.set(modelKey('notify', event), {
    ...model,
    ...times,
    ...tried,
    error: 'it has a bug',
    dead: true,
  });
}
