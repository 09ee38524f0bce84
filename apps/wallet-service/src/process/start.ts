import type { FrameworkConfig, RetryPolicy } from '@framework/core';
import type { AnyEventHandler } from '@framework/events';
import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';

import { composeWalletService } from '../composition.js';
import { HttpServer, type WebHandler } from '../http/http-server.js';
import { problemOf, problemResponse } from '../http/problem-of.js';
import { type WalletService, requestIdHeader } from '../http/wallet-app-env.js';
import { walletApp } from '../http/wallet-app.js';
import { deliveryOptions } from './delivery-options.js';
import type { ServiceRole } from './service-settings.js';

/** A wallet service that accepts requests. */
export interface RunningService {
  readonly service: WalletService;
  /** Such as `http://127.0.0.1:8080`. */
  readonly url: string;
  /** Stops accepting, finishes the requests and handlers that run, then closes the connections to the databases. */
  readonly stop: () => Promise<void>;
}

/**
 * Starts a wallet service: it listens at once, and serves each shard as soon as that one's database is ready.
 *
 * @throws ConfigurationError `invalid-configuration`, and the error of the system when it cannot listen
 */
export async function startService(options: {
  readonly config: FrameworkConfig;
  /** `http` leaves delivery to other processes. Default `all`. */
  readonly role?: Exclude<ServiceRole, 'worker'>;
  readonly host: string;
  readonly port: number;
  /** How many connections of clients there may be; further ones are closed at once. Default 2,000. */
  readonly connectionsMax?: number;
  readonly logger: Logger;
  /** Whether there is a page to read and try the interface, `/docs`. Default true. */
  readonly docs?: boolean;
  readonly retry?: Partial<RetryPolicy>;
  /** How long stopping may take before it is cut short. Default: as long as it takes. */
  readonly shutdownTimeoutMs?: number;
  /** Called when handlers hang: ends the process, so that its supervisor restarts it. Default: nothing. */
  readonly onRestartNeeded?: () => void;
}): Promise<RunningService> {
  const { config, role = 'all', retry, logger } = options;
  const service = composeWalletService(config, {
    ...deliveryOptions(options),
    ...(retry && { retry }),
    delivers: role === 'all',
  });
  try {
    const app = walletApp(service, options);
    const server = await HttpServer.listen(
      { fetch: (request, body) => app.fetch(request, { body }), ...refusals(logger) },
      options,
    );
    service.delivery.start();
    const stop = async (): Promise<void> => {
      // Side by side: a request that does not end must not keep the leases from being given back.
      await Promise.all([server.close(), service.delivery.stop()]);
      await service.databases.close();
    };
    return { service, url: server.url, stop };
  } catch (error) {
    await service.databases.close();
    throw error;
  }
}

/** What `OPTIONS *` and `CONNECT` are told. */
const methods = 'GET, HEAD, POST, OPTIONS';

/** Answers what never becomes a request of the app, as the app would, and logs the id that the answer carries. */
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
  /** Finishes the handlers that run, gives the leases back, then closes the connections to the databases. */
  readonly stop: () => Promise<void>;
}

/**
 * Starts delivery alone; it works on each database as soon as that one is ready.
 *
 * @throws ConfigurationError `invalid-configuration`
 */
export function startWorker(options: {
  readonly config: FrameworkConfig;
  readonly logger: Logger;
  /** Handlers besides the service's own. Default: none. */
  readonly handlers?: readonly AnyEventHandler[];
  /** How long stopping may take before it is cut short. Default: as long as it takes. */
  readonly shutdownTimeoutMs?: number;
  /** Called when handlers hang: ends the process, so that its supervisor restarts it. Default: nothing. */
  readonly onRestartNeeded?: () => void;
}): RunningWorker {
  const { config, handlers = [] } = options;
  const service = composeWalletService(config, { ...deliveryOptions(options), handlers });
  service.delivery.start();
  const stop = async (): Promise<void> => {
    await service.delivery.stop();
    await service.databases.close();
  };
  return { service, url: undefined, stop };
}
