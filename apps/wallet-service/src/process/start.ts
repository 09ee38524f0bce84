import { ConfigurationError, type FrameworkConfig, type RetryPolicy } from '@framework/core';
import type { AnyEventHandler } from '@framework/events';
import type { Relay } from '@framework/relay';
import { type RelaySources, openRelays } from '@framework/relay/config';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';

import { composeWalletService } from '../composition.js';
import { HttpServer, type WebHandler } from '../http/http-server.js';
import { problemOf, problemResponse } from '../http/problem-of.js';
import { type WalletService, requestIdHeader } from '../http/wallet-app-env.js';
import { walletApp } from '../http/wallet-app.js';
import { deliveryOptions } from './delivery-options.js';
import type { ServiceRole } from './service-settings.js';

/** Loaded only if a relay names it. */
const sources: RelaySources = {
  'logical-replication': async () => {
    const { logicalReplication } = await import('@framework/drizzle-adapter/logical-replication');
    return logicalReplication();
  },
};

/** A wallet service that accepts requests. */
export interface RunningService {
  readonly service: WalletService;
  /** The service's address, for example `http://127.0.0.1:8080`. */
  readonly url: string;
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
  readonly host: string;
  readonly port: number;
  /** The maximum number of client connections; further ones are closed at once. Default 2,000. */
  readonly connectionsMax?: number;
  readonly logger: Logger;
  /** Whether to serve `/docs`, a page for reading and trying the API. Default true. */
  readonly docs?: boolean;
  readonly retry?: Partial<RetryPolicy>;
  /** How long stopping may take before it is cut short. Default: unlimited. */
  readonly shutdownTimeoutMs?: number;
  /**
   * Called when handlers hang. It should end the process, so that its supervisor restarts it. Default: does nothing.
   */
  readonly onRestartNeeded?: () => void;
}): Promise<RunningService> {
  const { config, role = 'all', retry, logger } = options;
  const relays = await openRelays(config, sources);
  const service = composeWalletService(config, {
    ...deliveryOptions(options),
    ...(retry && { retry }),
    delivers: role === 'all',
    relays,
  });
  try {
    const app = walletApp(service, options);
    const server = await HttpServer.listen(
      { fetch: (request, body) => app.fetch(request, { body }), ...refusals(logger) },
      options,
    );
    service.delivery.start();
    const stop = async (): Promise<void> => {
      // In parallel: a request that does not end must not keep the leases from being given back.
      await Promise.all([server.close(), service.delivery.stop()]);
      await Promise.all([service.databases.close(), closeBrokers(relays)]);
    };
    return { service, url: server.url, stop };
  } catch (error) {
    await service.databases.close();
    throw error;
  }
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
function refusals(logger: Logger): Pick<WebHandler, 'refuse' | 'describe'> {
  return {
    refuse: (error) => {
      const requestId = randomUUID();
      const problem = problemOf(error);
      logger.info({ requestId, status: problem.status, reason: problem.detail }, 'request refused');
      const response = problemResponse(problem, requestId);
      if (problem.name === 'method-not-allowed') response.headers.set('allow', methods);
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
  const { config, role = 'worker', handlers = [] } = options;
  const relays = await openRelays(config, sources);
  if (role === 'relay' && relays.length === 0) {
    const message = 'has no relay, but WALLET_ROLE is relay: add one, or choose another role';
    throw new ConfigurationError([{ path: 'framework.relay', message }]);
  }
  const handles = role === 'worker';
  const service = composeWalletService(config, { ...deliveryOptions(options), handles, handlers, relays });
  service.delivery.start();
  const stop = async (): Promise<void> => {
    await service.delivery.stop();
    await Promise.all([service.databases.close(), closeBrokers(relays)]);
  };
  return { service, url: undefined, stop };
}
