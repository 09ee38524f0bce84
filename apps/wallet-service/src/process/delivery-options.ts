import { FrameworkException } from '@framework/core';
import type { Logger } from 'pino';
import type { CompositionOptions } from '../composition.js';
import { errorReason, errorStack } from '../error-stack.js';

/** How delivery fits into a process: its errors are logged, and stopping leaves time to give the leases back. */
export function deliveryOptions({
  logger,
  shutdownTimeoutMs = Infinity,
}: {
  readonly logger: Logger;
  readonly shutdownTimeoutMs?: number;
}): Pick<CompositionOptions, 'onDeliveryError' | 'stopTimeoutMaxMs'> {
  return {
    onDeliveryError: (error) => {
      // A database that is down, or not migrated yet, tells more by its reason than by a stack, and often.
      const isDown = FrameworkException.find(error)?.code === 'shard-unavailable';
      const details = isDown ? { reason: errorReason(error) } : { stack: errorStack(error) };
      logger.warn(details, 'delivery goes on after an error');
    },
    // The other half is for saving cursors and leases, and for closing connections.
    stopTimeoutMaxMs: shutdownTimeoutMs / 2,
  };
}
