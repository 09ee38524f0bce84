import { type ErrorCode, FrameworkError } from '@framework/core';
import { errorText } from '@framework/events';
import type { Logger } from 'pino';

import type { CompositionOptions } from '../composition.js';
import { errorReason, errorStack } from './service-logger.js';

/** The remedy that is logged with a dead letter. */
const deadLetterRemedy =
  'later events of the model wait behind it for this handler: fix the cause, then replay or skip it ' +
  '(docs/guides/handle-a-dead-letter.md)';

/** The remedy that is logged when a handler needs a shard that this process does not know. */
const unknownShardRemedy =
  'add the shard to framework.sharding.groups of this process; until then the event waits without counting attempts, ' +
  'and a process that knows the shard will handle it (docs/guides/add-a-shard.md)';

/**
 * Codes of a database that is down, not migrated yet, or replaced by another one. Their reason says more than their
 * stack.
 */
const databaseCodes: ReadonlySet<ErrorCode | undefined> = new Set([
  'shard-unavailable',
  'databases-closed',
  'transient-storage',
  'commit-outcome-unknown',
  'history-changed',
]);

/**
 * Connects delivery to the process: logs errors, failed attempts and database warnings, and limits how long stopping
 * may wait for handlers.
 */
export function deliveryOptions({
  logger,
  shutdownTimeoutMs = Infinity,
  onRestartNeeded = () => undefined,
}: {
  readonly logger: Logger;
  readonly shutdownTimeoutMs?: number;
  /** Ends the process, so that its supervisor restarts it. */
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
      logger.warn({ shards, ...details }, 'delivery continues after an error');
    },
    onDeliveryRecovered: (shards) => logger.info({ shards: shards.map(String) }, 'delivery has recovered'),
    onAttemptFailed: ({ handler, event, eventCount, attempt, counted, willRetry, retryAfterMs, error }) => {
      const { id, type, modelName, modelId } = event;
      const details = { handler, eventId: id, type, modelName, modelId, eventCount, attempt, counted };
      const reason = errorText(error);
      if (!willRetry) {
        const told = { ...details, reason, remedy: deadLetterRemedy };
        logger.error(told, 'a handler failed for the last time: the event is a dead letter');
        return;
      }
      const isUnknown = FrameworkError.find(error)?.code === 'unknown-shard';
      const told = { ...details, retryAfterMs, reason, ...(isUnknown && { remedy: unknownShardRemedy }) };
      logger.warn(told, 'a handler failed and will be retried');
    },
    onRestartNeeded: ({ abandonedCount, countByHandler }) => {
      const handlers = Object.fromEntries(countByHandler);
      logger.fatal({ abandonedCount, handlers }, 'handlers hang: this process stops delivering and exits');
      onRestartNeeded();
    },
    onDatabaseWarning: ({ message, ...details }) => logger.warn(details, message),
    // The other half is for saving cursors, giving leases back and closing connections.
    stopTimeoutMaxMs: Math.ceil(shutdownTimeoutMs / 2),
  };
}
