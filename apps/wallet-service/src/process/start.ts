import { ConfigurationError, type FrameworkConfig, type RetryPolicy } from '@framework/core';
import type { AnyEventHandler } from '@framework/events';
import { type HttpApi, ShardCapacity, errorReason, requestIdHeader } from '@framework/http';
import {
  AuditLog,
  type AuditSettings,
  ClientAddresses,
  RateLimits,
  ServerCertificate,
  assertLoopbackOnly,
  openSharedRates,
} from '@framework/http/security';
import type { Relay } from '@framework/relay';
import { type RelaySources, openRelays } from '@framework/relay/config';
import { Telemetry } from '@framework/telemetry';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';

import { composeWalletService } from '../composition.js';
import { HttpServer, type WebHandler } from '../http/http-server.js';
import { type HttpLimits, parseHttpSettings } from '../http/http-settings.js';
import { securitySettings } from '../security/security-settings.js';
import { deliveryOptions } from './delivery-options.js';
import { logMessages } from './log-messages.js';
import { listenForOperators } from './operator-listener.js';
import { ServiceMetrics } from './service-metrics.js';
import { walletApi, walletApp } from '../wallet-app.js';
import type { WalletService } from '../wallet-service.js';
import type { ServiceRole } from './service-settings.js';

/** Loaded only if a relay names it. */
const sources: RelaySources = {
  'logical-replication': async () => {
    const { logicalReplication } = await import('@framework/drizzle-adapter/logical-replication');
    return logicalReplication();
  },
};

/** What makes the service serve other computers. */
const jwtRemedy = 'configure framework.security.jwt in the file of WALLET_CONFIG';

/** A wallet service that accepts requests. */
export interface RunningService {
  readonly service: WalletService;
  /** The service's address, for example `http://127.0.0.1:8080`. */
  readonly url: string;
  /** Where Prometheus reads metrics; `undefined` when `framework.metrics` has no port. */
  readonly metricsUrl: string | undefined;
  /** The address for operators; `undefined` when the configuration has none. */
  readonly operatorUrl: string | undefined;
  /** The page for operators; `undefined` when there is none. */
  readonly consoleUrl: string | undefined;
  /** Stops accepting connections, finishes running requests and handlers, then closes the database connections. */
  readonly stop: () => Promise<void>;
}

/**
 * Starts a wallet service. It listens at once, and serves each shard as soon as its database is ready.
 *
 * @throws ConfigurationError `invalid-configuration` when the configuration has a mistake
 * @throws the system's error when the service cannot listen
 */
export async function startService(options: {
  readonly config: FrameworkConfig;
  /** `http` leaves delivery to other processes. Default `all`. */
  readonly role?: Extract<ServiceRole, 'all' | 'http'>;
  /** Without authentication, only the loopback address. */
  readonly host: string;
  readonly port: number;
  /** Whether the process is in operation, which needs authentication. Default false. */
  readonly isProduction?: boolean;
  /** The maximum number of client connections; further ones are closed at once. Default: that of `config.http`. */
  readonly connectionsMax?: number | undefined;
  readonly logger: Logger;
  /** Whether to serve `/docs`, a page for reading and trying the API. Default true. */
  readonly docs?: boolean;
  /** Handlers besides the service's own. Default: none. */
  readonly handlers?: readonly AnyEventHandler[];
  readonly retry?: Partial<RetryPolicy>;
  /** How long stopping may take before it is cut short. Default: unlimited. */
  readonly shutdownTimeoutMs?: number;
  /**
   * Called when handlers hang. It should end the process, so that its supervisor restarts it. Default: does nothing.
   */
  readonly onRestartNeeded?: () => void;
}): Promise<RunningService> {
  const { config, role = 'all', retry, logger, isProduction = false } = options;
  const security = securitySettings(config);
  if (security.jwt === undefined) assertLoopbackOnly({ host: options.host, isProduction, remedy: jwtRemedy });
  const { limits, trustedProxies, tls, cors } = parseHttpSettings(config.http);
  const certificate = tls && (await ServerCertificate.read(tls));
  const audit = security.audit && (await openAudit(security.audit, logger));
  const metrics = new ServiceMetrics(config);
  const observer = new Telemetry({ meterProvider: metrics.meterProviders });
  const relays = await openRelays(config, { sources, observer });
  const service = composeWalletService(config, {
    ...deliveryOptions(options),
    ...(retry && { retry }),
    delivers: role === 'all',
    handlers: options.handlers ?? [],
    relays,
    observer,
    onKeysFailure: (error) => logger.warn({ reason: errorReason(error) }, logMessages.keysFailed),
  });
  try {
    service.authentication?.preload();
    const { rates, capacity, close } = await openLimits(limits, logger);
    const encrypted = tls !== undefined;
    const api = walletApi(service, { ...options, encrypted, rates, capacity, audit });
    const app = walletApp(api, { meterProvider: metrics.own, cors });
    const server = await HttpServer.listen(
      {
        fetch: (request, exchange) => app.fetch(request, exchange),
        ...refusals(api, logger),
      },
      {
        host: options.host,
        port: options.port,
        limits: { ...limits, connectionsMax: options.connectionsMax ?? limits.connectionsMax },
        tls: certificate?.context,
        clients: new ClientAddresses({ trustedProxies, unlimited: limits.unlimitedAddresses }),
      },
    );
    const metricsUrl = await metrics.start(service.databases, logger);
    const closeAudit = async (): Promise<void> => {
      await audit?.close();
      if (audit !== undefined) logger.info(audit.end, logMessages.auditEnd);
    };
    const unfollow = certificate?.follow((context) => server.renewCertificate(context), logger);
    const operators = await listenForOperators(config, service, { logger });
    service.delivery.start();
    const stop = async (): Promise<void> => {
      unfollow?.();
      // In parallel: a request that does not end must not keep the leases from being given back.
      await Promise.all([server.close(), operators?.close(), service.delivery.stop()]);
      await metrics.stop();
      await Promise.all([service.databases.close(), closeBrokers(relays), close(), closeAudit()]);
    };
    return {
      service,
      url: server.url,
      metricsUrl,
      operatorUrl: operators?.url,
      consoleUrl: operators?.consoleUrl,
      stop,
    };
  } catch (error) {
    await Promise.all([metrics.stop(), service.databases.close(), audit?.close()]);
    throw error;
  }
}

/** @throws ConfigurationError `invalid-configuration` when a file cannot be opened */
async function openAudit(settings: AuditSettings, logger: Logger): Promise<AuditLog> {
  const onFailure = (error: unknown): void =>
    logger.error({ reason: errorReason(error) }, logMessages.auditFailed);
  try {
    const audit = await AuditLog.open(settings, onFailure);
    logger.info(audit.end, logMessages.auditEnd);
    return audit;
  } catch (cause) {
    const message = `cannot be opened (${(cause as NodeJS.ErrnoException).code ?? errorReason(cause)})`;
    throw new ConfigurationError([{ path: 'framework.security.audit', message }], { cause });
  }
}

/** Makes what counts requests, and connects to the store in which processes count together, if there is one. */
async function openLimits(limits: HttpLimits, logger: Logger): Promise<OpenLimits> {
  const shared =
    limits.sharedBy &&
    (await openSharedRates(limits.sharedBy, {
      applicationName: 'wallet-service',
      onOutage: (error) => logger.warn({ reason: errorReason(error) }, logMessages.ratesAlone),
    }));
  return {
    rates: new RateLimits(limits, shared?.counter),
    capacity: new ShardCapacity(limits.requestsPerShardMax),
    close: async () => shared?.close(),
  };
}

interface OpenLimits {
  readonly rates: RateLimits;
  readonly capacity: ShardCapacity;
  readonly close: () => Promise<void>;
}

/** How long disconnecting from the brokers may take, in milliseconds. */
const brokersCloseMs = 1_000;

/** Disconnects from the brokers; one that does not answer needs nothing any more, and must not use up the time for stopping. */
async function closeBrokers(relays: readonly Relay[]): Promise<void> {
  const closed = new AbortController();
  const late = delay(brokersCloseMs, undefined, { signal: closed.signal }).catch(() => undefined);
  await Promise.race([Promise.allSettled(relays.map(({ broker }) => broker.close())), late]);
  closed.abort();
}

/** The methods that `OPTIONS *` lists, and the answer to an unsupported method such as `CONNECT`. */
const methods = 'GET, HEAD, POST, OPTIONS';

/** Answers input that never becomes a request of the app as the app would, and logs the id that the answer carries. */
function refusals(api: HttpApi, logger: Logger): Pick<WebHandler, 'refuse' | 'describe'> {
  return {
    refuse: (error) => {
      const { response, fields } = api.refuse(error);
      logger.info(fields, logMessages.requestRefused);
      if (response.status === 405) response.headers.set('allow', methods);
      return response;
    },
    describe: () => {
      const headers = { allow: methods, [requestIdHeader]: randomUUID() };
      return new Response(null, { status: 204, headers });
    },
  };
}

/** A process that delivers events and answers no requests. */
export interface RunningWorker {
  readonly service: WalletService;
  readonly url: undefined;
  readonly consoleUrl: undefined;
  /** Where Prometheus reads metrics; `undefined` when `framework.metrics` has no port. */
  readonly metricsUrl: string | undefined;
  /** Finishes running handlers, gives the leases back, then closes the database connections. */
  readonly stop: () => Promise<void>;
}

/**
 * Starts delivery without HTTP, to the handlers and relays or to the relays only. It works on each database as soon as that database is ready.
 *
 * @throws ConfigurationError `invalid-configuration` when the configuration has a mistake
 */
export async function startWorker(options: {
  readonly config: FrameworkConfig;
  /** `relay` leaves the handlers to other processes. Default `worker`. */
  readonly role?: Extract<ServiceRole, 'worker' | 'relay'>;
  readonly logger: Logger;
  /** Handlers besides the service's own. Default: none. */
  readonly handlers?: readonly AnyEventHandler[];
  /** How long stopping may take before it is cut short. Default: unlimited. */
  readonly shutdownTimeoutMs?: number;
  /**
   * Called when handlers hang. It should end the process, so that its supervisor restarts it. Default: does nothing.
   */
  readonly onRestartNeeded?: () => void;
}): Promise<RunningWorker> {
  const { config, role = 'worker', handlers = [], logger } = options;
  const metrics = new ServiceMetrics(config);
  const observer = new Telemetry({ meterProvider: metrics.meterProviders });
  const relays = await openRelays(config, { sources, observer });
  if (role === 'relay' && relays.length === 0) {
    const message = 'has no relay, but WALLET_ROLE is relay: add one, or choose another role';
    throw new ConfigurationError([{ path: 'framework.relay', message }]);
  }
  const handles = role === 'worker';
  const service = composeWalletService(config, {
    ...deliveryOptions(options),
    handles,
    handlers,
    relays,
    observer,
  });
  const metricsUrl = await metrics.start(service.databases, logger).catch(async (error: unknown) => {
    await Promise.all([metrics.stop(), service.databases.close()]);
    throw error;
  });
  service.delivery.start();
  const stop = async (): Promise<void> => {
    await service.delivery.stop();
    await metrics.stop();
    await Promise.all([service.databases.close(), closeBrokers(relays)]);
  };
  return { service, url: undefined, consoleUrl: undefined, metricsUrl, stop };
}
