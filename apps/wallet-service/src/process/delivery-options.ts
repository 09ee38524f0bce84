import { type ErrorCode, FrameworkError } from '@framework/core';
import { errorText } from '@framework/events';
import type { Logger } from 'pino';

import type { CompositionOptions } from '../composition.js';
import { errorReason, errorStack } from './service-logger.js';

/** What operators are told with a dead letter. */
const deadLetterRemedy =
  'later events of the model wait behind it, for this handler: mend the cause, then replay or skip it ' +
  '(docs/guides/handle-a-dead-letter.md)';

/** What operators are told when a handler needs a shard that this process does not know. */
const unknownShardRemedy =
  'add the shard to framework.sharding.groups of this process; the event waits meanwhile, without counting attempts, ' +
  'and a process that knows the shard takes it over (docs/guides/add-a-shard.md)';

/** Of a database that is down, not migrated yet, or another one than before: its errors tell more by their reason than by a stack. */
const databaseCodes: ReadonlySet<ErrorCode | undefined> = new Set([
  'shard-unavailable',
  'transient-storage',
  'commit-outcome-unknown',
  'history-changed',
]);

/**
 * How delivery fits into a process: its errors and failed attempts, and warnings of its databases, are logged, and stopping
 * leaves time to give the leases back.
 */
export function deliveryOptions({
  logger,
  shutdownTimeoutMs = Infinity,
  onRestartNeeded = () => undefined,
}: {
  readonly logger: Logger;
  readonly shutdownTimeoutMs?: number;
  /** Ends the process, so that its supervisor starts it again. */
  readonly onRestartNeeded?: () => void;
}): Pick<
  CompositionOptions,
  | 'onDeliveryError'
  | 'onDeliveryRecovered'
  | 'onAttemptFailed'
  | 'onDatabaseWarning'
  | 'onRestartNeeded'
  | 'stopTimeoutMaxMs'
> {
  return {
    onDeliveryError: (error, ofDatabase) => {
      const shards = ofDatabase.map(String);
      const code = FrameworkError.find(error)?.code;
      if (code === 'handler-names') {
        logger.fatal(
          { shards, reason: errorReason(error) },
          'nothing is delivered from a database: it refuses a handler',
        );
        return;
      }
      const details = databaseCodes.has(code) ? { reason: errorReason(error) } : { stack: errorStack(error) };
      logger.warn({ shards, ...details }, 'delivery goes on after an error');
    },
    onDeliveryRecovered: (shards) => logger.info({ shards: shards.map(String) }, 'delivery has recovered'),
    onAttemptFailed: ({ handler, event, eventCount, attempt, counted, willRetry, retryAfterMs, error }) => {
      const { id, type, modelName, modelId } = event;
      const details = { handler, eventId: id, type, modelName, modelId, eventCount, attempt, counted };
      const reason = errorText(error);
      if (!willRetry) {
        const told = { ...details, reason, remedy: deadLetterRemedy };
        logger.error(told, 'a handler gave up an event: it is a dead letter');
        return;
      }
      const isUnknown = FrameworkError.find(error)?.code === 'unknown-shard';
      const told = { ...details, retryAfterMs, reason, ...(isUnknown && { remedy: unknownShardRemedy }) };
      logger.warn(told, 'a handler failed and is retried');
    },
    onRestartNeeded: ({ abandonedCount, countByHandler }) => {
      const handlers = Object.fromEntries(countByHandler);
      logger.fatal({ abandonedCount, handlers }, 'handlers hang: this process stops delivering and exits');
      onRestartNeeded();
    },
    onDatabaseWarning: ({ message, ...details }) => logger.warn(details, message),
    // The other half is for saving cursors and leases, and for closing connections.
    stopTimeoutMaxMs: Math.ceil(shutdownTimeoutMs / 2),
  };
}
