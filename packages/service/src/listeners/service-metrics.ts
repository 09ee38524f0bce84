import type { DatabaseRegistry, FrameworkConfig } from '@framework/core';
import { parseSection } from '@framework/http';
import { observeDelivery, observePools } from '@framework/telemetry';
import { type MeterProvider as Provider, metrics } from '@opentelemetry/api';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { AggregationTemporality, InstrumentType, MeterProvider } from '@opentelemetry/sdk-metrics';
import { once } from 'node:events';
import { type Server, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Logger } from 'pino';
import * as z from 'zod';

import { logMessages } from '../log/log-messages.js';

const portIssue = 'must be a whole number from 0 to 65535';
const intervalIssue = 'must be a whole number from 100 to 3600000';

/** The section `framework.metrics`. */
export const metricsSchema = z.strictObject({
  host: z.string().min(1, 'is empty: name a host').default('127.0.0.1'),
  port: z.int(portIssue).min(0, portIssue).max(65_535, portIssue).optional(),
  intervalMs: z.int(intervalIssue).min(100, intervalIssue).max(3_600_000, intervalIssue).default(5_000),
});

/** More than enough for those that collect metrics, and few enough to be no burden. */
const connectionsMax = 16;

/** Measures a process, for the SDK that is registered with OpenTelemetry's API, if there is one, and for Prometheus, if it is configured. */
export class ServiceMetrics {
  /** Where requests are measured besides the registered SDK; `undefined` when Prometheus is not served. */
  readonly own: Provider | undefined;
  readonly #settings: z.output<typeof metricsSchema>;
  readonly #exporter: PrometheusExporter | undefined;
  #server: Server | undefined;
  #ends: readonly (() => void)[] = [];

  /** @throws ConfigurationError `invalid-configuration` with the path of every fault */
  constructor(config: Pick<FrameworkConfig, 'metrics'>) {
    this.#settings = parseSection('metrics', metricsSchema, config.metrics);
    if (this.#settings.port === undefined) return;
    this.#exporter = new FreshPrometheusExporter({
      preventServerStart: true,
      withoutScopeInfo: true,
      withoutTargetInfo: true,
    });
    this.own = new MeterProvider({ readers: [this.#exporter] });
  }

  /** All that take what is measured. */
  get meterProviders(): readonly Provider[] {
    return this.own === undefined ? [metrics] : [metrics, this.own];
  }

  /**
   * Begins to observe the databases, and serves `/metrics` if that is configured.
   *
   * @returns its address
   * @throws the system's error when it cannot listen
   */
  async start(databases: DatabaseRegistry, logger: Logger): Promise<string | undefined> {
    const { host, port, intervalMs } = this.#settings;
    const observed = { databases, meterProvider: this.meterProviders };
    this.#ends = [observeDelivery({ ...observed, intervalMs }), observePools(observed)];
    if (this.#exporter === undefined) return undefined;
    this.#server = metricsServer(this.#exporter);
    this.#server.listen(port, host);
    await once(this.#server, 'listening');
    const { address, family, port: own } = this.#server.address() as AddressInfo;
    const url = `http://${family === 'IPv6' ? `[${address}]` : address}:${own}/metrics`;
    logger.info({ url }, logMessages.metricsServed);
    return url;
  }

  /** Observes and serves nothing more. */
  async stop(): Promise<void> {
    for (const end of this.#ends) end();
    this.#server?.close();
    this.#server?.closeAllConnections();
    await this.#exporter?.shutdown();
  }
}

/** The SDK repeats what is no longer observed, unless it is told that a gauge begins anew with each collection, which it does. */
class FreshPrometheusExporter extends PrometheusExporter {
  override selectAggregationTemporality(instrument: InstrumentType): AggregationTemporality {
    return instrument === InstrumentType.OBSERVABLE_GAUGE
      ? AggregationTemporality.DELTA
      : super.selectAggregationTemporality(instrument);
  }
}

function metricsServer(exporter: PrometheusExporter): Server {
  const server = createServer((request, response) => {
    const [path] = (request.url ?? '').split('?');
    if (path !== '/metrics') response.writeHead(404).end();
    else if (request.method === 'GET') exporter.getMetricsRequestHandler(request, response);
    else response.writeHead(405, { allow: 'GET' }).end();
  });
  server.maxConnections = connectionsMax;
  return server;
}
