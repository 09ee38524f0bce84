import type { DatabaseRegistry } from '@framework/core';
import { type BatchObservableCallback, ValueType } from '@opentelemetry/api';

import { type MeterProviders, metersOf } from './meters.js';

/** Whose pools are observed, and where the figures go. */
export interface PoolGaugesOptions {
  readonly databases: Pick<DatabaseRegistry, 'pools'>;
  /** Default: that of the SDK that is registered with `@opentelemetry/api`; without one, nothing is observed. */
  readonly meterProvider?: MeterProviders;
}

/**
 * Shows how the pools of connections of this process are used, under the names that OpenTelemetry's semantic conventions give. It
 * asks no database.
 *
 * @returns a function that ends it
 */
export function observePools({ databases, meterProvider }: PoolGaugesOptions): () => void {
  const ends = metersOf(meterProvider).map((meter) => {
    const gauge = (name: string, unit: string, description: string) =>
      meter.createObservableUpDownCounter(`db.client.connection.${name}`, {
        unit,
        description,
        valueType: ValueType.INT,
      });
    const count = gauge('count', '{connection}', 'Connections that are used or idle');
    const max = gauge('max', '{connection}', 'The maximum number of open connections');
    const pending = gauge('pending_requests', '{request}', 'Callers that wait for a connection');
    const gauges = [count, max, pending];
    const observe: BatchObservableCallback = (result) => {
      for (const pool of databases.pools()) {
        const attributes = { 'db.client.connection.pool.name': pool.name };
        const inState = (state: string) => ({ ...attributes, 'db.client.connection.state': state });
        result.observe(count, pool.usedCount, inState('used'));
        result.observe(count, pool.idleCount, inState('idle'));
        result.observe(max, pool.max, attributes);
        result.observe(pending, pool.pendingCount, attributes);
      }
    };
    meter.addBatchObservableCallback(observe, gauges);
    return () => meter.removeBatchObservableCallback(observe, gauges);
  });
  return () => ends.forEach((end) => end());
}
