import { type RunningService, type StartOptions, startService } from '@framework/service';

import type { WalletApplication } from '../src/composition.js';
import { walletService } from '../src/wallet-service.js';

/** A wallet service that answers requests. */
export interface RunningWallets extends RunningService<WalletApplication> {
  readonly url: string;
}

/** Starts a wallet service that answers requests, on the loopback address. */
export async function startWallets(options: StartOptions): Promise<RunningWallets> {
  const { url, ...running } = await startService(walletService, options);
  if (url === undefined) throw new Error('It answers no requests');
  return { ...running, url };
}

/** Starts a process that delivers and answers no requests. */
export function startWorker(options: StartOptions): Promise<RunningService<WalletApplication>> {
  return startService(walletService, { role: 'worker', ...options });
}

export type { RunningService };
