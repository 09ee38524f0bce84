import type { FrameworkConfig } from '@framework/core';
import type { AnyEventHandler } from '@framework/events';
import type { Logger } from 'pino';
import { composeWalletService } from './composition.js';
import type { WalletService } from './http/wallet-service.js';
import { deliveryOptions } from './process/delivery-options.js';

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
 * @throws ConfigurationException `invalid-configuration`
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
