import type { FrameworkConfig, RetryPolicy } from '@framework/core';
import type { Logger } from 'pino';
import { composeWalletService } from './composition.js';
import { errorStack } from './error-stack.js';
import { HttpServer } from './http/http-server.js';
import { walletApp } from './http/wallet-app.js';
import type { WalletService } from './http/wallet-service.js';

/** A wallet service that accepts requests. */
export interface RunningService {
  readonly service: WalletService;
  /** Such as `http://127.0.0.1:8080`. */
  readonly url: string;
  /** Stops accepting, finishes the requests that run, then closes the connections to the databases. */
  readonly stop: () => Promise<void>;
}

/**
 * Starts a wallet service: it listens at once, and serves each shard as soon as that one's database is ready.
 *
 * @throws ConfigurationException `invalid-configuration`, and the error of the system when it cannot listen
 */
export async function startService(options: {
  readonly config: FrameworkConfig;
  readonly host: string;
  readonly port: number;
  readonly logger: Logger;
  readonly retry?: Partial<RetryPolicy>;
}): Promise<RunningService> {
  const { config, retry, logger } = options;
  const service = composeWalletService(config, {
    ...(retry && { retry }),
    onDeliveryError: (error) => {
      logger.warn({ stack: errorStack(error) }, 'delivery goes on after an error');
    },
  });
  try {
    const app = walletApp(service, logger);
    const server = await HttpServer.listen((request) => app.fetch(request), options);
    service.delivery.start();
    const stop = async (): Promise<void> => {
      await server.close();
      await service.delivery.stop();
      await service.databases.close();
    };
    return { service, url: server.url, stop };
  } catch (error) {
    await service.databases.close();
    throw error;
  }
}
