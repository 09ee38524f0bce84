import type { FrameworkConfig, RetryPolicy } from '@framework/core';
import type { Logger } from 'pino';
import { composeWalletService } from './composition.js';
import type { ServiceRole } from './configuration/service-settings.js';
import { HttpServer } from './http/http-server.js';
import { refusals } from './http/refuse-request.js';
import { walletApp } from './http/wallet-app.js';
import type { WalletService } from './http/wallet-service.js';
import { deliveryOptions } from './process/delivery-options.js';

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
 * @throws ConfigurationException `invalid-configuration`, and the error of the system when it cannot listen
 */
export async function startService(options: {
  readonly config: FrameworkConfig;
  /** `http` leaves delivery to other processes. Default `all`. */
  readonly role?: Exclude<ServiceRole, 'worker'>;
  readonly host: string;
  readonly port: number;
  readonly logger: Logger;
  readonly retry?: Partial<RetryPolicy>;
  /** How long stopping may take before it is cut short. Default: as long as it takes. */
  readonly shutdownTimeoutMs?: number;
  /** Ends the process, because its handlers hang and its supervisor is to start it again. Default: nothing. */
  readonly onRestartNeeded?: () => void;
}): Promise<RunningService> {
  const { config, role = 'all', retry, logger } = options;
  const service = composeWalletService(config, {
    ...deliveryOptions(options),
    ...(retry && { retry }),
    delivers: role === 'all',
  });
  try {
    const app = walletApp(service, logger);
    const server = await HttpServer.listen(
      { fetch: (request) => app.fetch(request), ...refusals(logger) },
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
