import { ConfigurationError, type FrameworkConfig, type RetryPolicy } from '@framework/core';
import type { AnyEventHandler } from '@framework/events';
import { errorReason } from '@framework/http';
import type { Relay } from '@framework/relay';
import { type RelaySources, openRelays } from '@framework/relay/config';
import { Telemetry } from '@framework/telemetry';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';

import {
  type OperatorListener,
  listenForOperators,
  operatorSettings,
} from '../listeners/operator-listener.js';
import { ServiceMetrics } from '../listeners/service-metrics.js';
import { deliveryOptions } from '../log/delivery-log.js';
import { logMessages } from '../log/log-messages.js';
import { openService } from '../open-service.js';
import type {
  Application,
  ServedApi,
  Service,
  ServiceDefinition,
  ServiceDescription,
} from '../service-definition.js';
import { namesOf } from '../service-names.js';
import type { ServiceRole } from '../settings/service-settings.js';
import { HttpListener, type ListenOptions } from '../listeners/http-listener.js';

/** Loaded only if a relay names it. */
const sources: RelaySources = {
  'logical-replication': async () => {
    const { logicalReplication } = await import('@framework/logical-replication');
    return logicalReplication();
  },
};

/** How a service is started. */
export interface StartOptions extends Partial<Omit<ListenOptions, 'config' | 'logger'>> {
  readonly config: FrameworkConfig;
  readonly logger: Logger;
  /** `http` leaves delivery to other processes, `worker` answers no requests, and `relay` leaves the handlers out besides. Default `all`. */
  readonly role?: ServiceRole;
  /** Handlers besides the application's own. Default: none. */
  readonly handlers?: readonly AnyEventHandler[];
  /** What to change in the executor's policy for attempts. Default: nothing. */
  readonly retry?: Partial<RetryPolicy>;
  /**
   * How long the caller lets `stop` take, in milliseconds: handlers may take half of it. Default: unlimited. A start that fails closes what
   * it has opened for as long; default 10,000.
   */
  readonly shutdownTimeoutMs?: number;
  /** Called when handlers hang. It should end the process, so that its supervisor restarts it. Default: does nothing. */
  readonly onRestartNeeded?: () => void;
}

/** A service that runs in this process. */
export interface RunningService<A extends Application = Application> {
  readonly service: Service<A>;
  /** Its address, for example `http://127.0.0.1:8080`; `undefined` when the process answers no requests. */
  readonly url: string | undefined;
  /** The page for reading and trying the API; `undefined` when there is none. */
  readonly docsUrl: string | undefined;
  /** Where Prometheus reads metrics; `undefined` when `framework.metrics` has no port. */
  readonly metricsUrl: string | undefined;
  /** The address for operators; `undefined` when there is none. */
  readonly operatorUrl: string | undefined;
  /** The page for operators; `undefined` when there is none. */
  readonly consoleUrl: string | undefined;
  /** Stops accepting connections, finishes running requests and handlers, gives the leases back, then closes the database connections. */
  readonly stop: () => Promise<void>;
}

/**
 * Starts a service in this process. It listens at once, and serves and delivers on each shard as soon as its database is ready.
 *
 * @throws ConfigurationError `invalid-configuration` when the configuration has a mistake
 * @throws the system's error when it cannot listen
 */
export async function startService<A extends Application>(
  definition: ServiceDefinition<A>,
  options: StartOptions,
): Promise<RunningService<A>> {
  const { config, logger, role = 'all', handlers = [], retry } = options;
  operatorSettings(config);
  const metrics = new ServiceMetrics(config);
  const opened: Opened<A> = { metrics, relays: [] };
  try {
    const listener = (opened.listener = await openListener(definition, options));
    const observer = new Telemetry({ meterProvider: metrics.meterProviders });
    const relays = (opened.relays = await openRelays(config, { sources, observer }));
    if (role === 'relay' && relays.length === 0) throw noRelay(definition);
    const service = (opened.service = openService(definition, config, {
      ...deliveryOptions(options),
      retry,
      delivers: role !== 'http',
      handles: role !== 'relay',
      handlers,
      relays,
      observer,
      onKeysFailure: (error) => logger.warn({ reason: errorReason(error) }, logMessages.keysFailed),
    }));
    const server = (opened.server = await listener?.serve(service, metrics.own));
    const metricsUrl = await metrics.start(service.databases, logger);
    const isOperated = role === 'all' || role === 'http';
    const operators = (opened.operators = isOperated
      ? await listenForOperators(config, service, { logger })
      : undefined);
    service.delivery.start();
    return {
      service,
      url: server?.url,
      docsUrl: server?.docsUrl,
      metricsUrl,
      operatorUrl: operators?.url,
      consoleUrl: operators?.consoleUrl,
      stop: () => closeAll(opened),
    };
  } catch (error) {
    const { shutdownTimeoutMs = failedCloseMs } = options;
    await within(shutdownTimeoutMs, closeAll(opened)).catch(() => undefined);
    throw error;
  }
}

/** How long closing what a failed start has opened may take if its caller sets no limit, in milliseconds. */
const failedCloseMs = 10_000;

/** What a service has opened so far. */
interface Opened<A extends Application> {
  readonly metrics: ServiceMetrics;
  relays: readonly Relay[];
  listener?: HttpListener<A> | undefined;
  service?: Service<A>;
  server?: ServedApi | undefined;
  operators?: OperatorListener | undefined;
}

/**
 * Closes everything, whatever of it fails to close.
 *
 * @throws the first error, when everything is closed
 */
async function closeAll<A extends Application>(opened: Opened<A>): Promise<void> {
  const { metrics, relays, listener, service, server, operators } = opened;
  const failures: unknown[] = [];
  const settled = async (...closings: readonly (() => Promise<unknown> | undefined)[]): Promise<void> => {
    // What an application provides may also throw at once.
    for (const outcome of await Promise.allSettled(closings.map(async (close) => close())))
      if (outcome.status === 'rejected') failures.push(outcome.reason);
  };
  // In parallel: a request that does not end must not keep the leases from being given back.
  await settled(
    () => server?.close(),
    () => operators?.close(),
    () => service?.delivery.stop(),
  );
  await settled(() => metrics.stop());
  await settled(
    () => service?.databases.close(),
    () => closeBrokers(relays),
    () => listener?.close(),
  );
  if (failures.length > 0) throw failures[0];
}

/** @returns `undefined` when the process answers no requests */
async function openListener<A extends Application>(
  definition: ServiceDefinition<A>,
  { role = 'all', host = '127.0.0.1', port = 8080, ...options }: StartOptions,
): Promise<HttpListener<A> | undefined> {
  const { http } = definition;
  if (role === 'worker' || role === 'relay') return undefined;
  if (http !== undefined) return HttpListener.open({ ...definition, http }, { host, port, ...options });
  if (role === 'all') return undefined;
  const message = 'is http, but the application has no routes: choose another role';
  throw new ConfigurationError([{ path: `${namesOf(definition).variables}_ROLE`, message }]);
}

function noRelay(definition: Pick<ServiceDescription, 'name'>): ConfigurationError {
  const message = `has no relay, but ${namesOf(definition).variables}_ROLE is relay: add one, or choose another role`;
  return new ConfigurationError([{ path: 'framework.relay', message }]);
}

/** How long disconnecting from the brokers may take, in milliseconds. */
const brokersCloseMs = 1_000;

/** Disconnects from the brokers; one that does not answer needs nothing any more, and must not use up the time for stopping. */
async function closeBrokers(relays: readonly Relay[]): Promise<void> {
  // Each on its own: one that throws must not keep the others connected.
  await within(brokersCloseMs, Promise.allSettled(relays.map(async ({ broker }) => broker.close())));
}

/** Waits for what may hang, but no longer than that. */
async function within(timeoutMs: number, closing: Promise<unknown>): Promise<void> {
  const closed = new AbortController();
  const late = delay(timeoutMs, undefined, { signal: closed.signal }).catch(() => undefined);
  try {
    await Promise.race([closing, late]);
  } finally {
    closed.abort();
  }
}
