import { type ErrorCode, FrameworkError } from '@framework/core';
import type { AttemptFailure } from '@framework/events';
import { RepeatedFailures, attemptReason, errorReason, errorStack, shardsIn } from '@framework/http';
import type { Logger } from 'pino';

import type { OpenServiceOptions } from '../open-service.js';
import { traceOf } from './log-format.js';
import { databaseMessages, logMessages } from './log-messages.js';

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
 * Connects a delivery to the process: logs errors, failed attempts and database warnings, and limits how long stopping
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
}): Required<Pick<OpenServiceOptions, 'deliveryHooks' | 'onDatabaseWarning' | 'stopTimeoutMaxMs'>> {
  const waiting = new RepeatedFailures<WaitingHandler>(
    ({ subject, count, durationMs }) =>
      logger.info({ ...subject, attemptCount: count, durationMs }, logMessages.attemptsSucceed),
    'end',
  );
  return {
    deliveryHooks: {
      onError: (error, ofDatabase) => {
        const shards = ofDatabase.map(String);
        const code = FrameworkError.find(error)?.code;
        if (code === 'handler-names') {
          logger.fatal({ shards, reason: errorReason(error) }, logMessages.handlerRefused);
          return;
        }
        const details = databaseCodes.has(code)
          ? { reason: errorReason(error) }
          : { stack: errorStack(error) };
        logger.warn({ shards, ...details }, logMessages.deliveryError);
      },
      onRecovered: (shards) => logger.info({ shards: shards.map(String) }, logMessages.deliveryRecovered),
      onLeaseLost: ({ shards, cause, slotsByHandler }) =>
        logger.warn(
          { shards: shards.map(String), cause, slots: Object.fromEntries(slotsByHandler) },
          logMessages.leaseLost,
        ),
      onAttemptFailed: (failure) => {
        const { error, counted, willRetry, retryAfterMs = 0 } = failure;
        const details = attemptFields(failure);
        const { reason } = details;
        if (!willRetry) {
          logger.error({ ...details, remedy: deadLetterRemedy }, logMessages.deadLetter);
          return;
        }
        const known = FrameworkError.find(error);
        const { handler } = failure;
        const subject = { handler, ...(known && { code: known.code }), ...unavailableIn(known) };
        // Of events that wait for a shard or a broker, there may be very many. The next attempt is due before it is quiet.
        const quietMs = retryAfterMs + lateMs;
        if (!counted && !waiting.failed(Object.values(subject).join(' '), subject, reason, quietMs)) return;
        const remedy = known?.code === 'unknown-shard' ? { remedy: unknownShardRemedy } : {};
        const told = { ...details, retryAfterMs, ...subject, ...remedy };
        logger.warn(told, logMessages.attemptFailed);
      },
      onRestartNeeded: ({ abandonedCount, countByHandler }) => {
        const handlers = Object.fromEntries(countByHandler);
        logger.fatal({ abandonedCount, handlers }, logMessages.handlersHang);
        onRestartNeeded();
      },
    },
    onDatabaseWarning: ({ kind, database, message, stack }) => {
      const told = { kind, database, reason: message, ...(stack !== undefined && { stack }) };
      // After a failover or a move, an epoch is what should begin.
      if (kind === 'new-epoch') logger.info(told, databaseMessages[kind]);
      else logger.warn(told, databaseMessages[kind]);
    },
    // The other half is for saving cursors, giving leases back and closing connections.
    stopTimeoutMaxMs: Math.ceil(shutdownTimeoutMs / 2),
  };
}

/** How late an attempt may be before nothing keeps its handler waiting any more, in milliseconds. */
const lateMs = 10_000;

/** A handler whose attempts do not count, because something else is unavailable. */
interface WaitingHandler {
  readonly handler: string;
  readonly code?: ErrorCode;
  readonly unavailable?: string;
}

function unavailableIn(known: FrameworkError | undefined): { readonly unavailable?: string } {
  return known !== undefined && 'shard' in known ? { unavailable: String(known.shard) } : {};
}

/** What every failed attempt of a handler says. */
function attemptFields({ handler, event, eventCount, attempt, counted, error }: AttemptFailure): Readonly<
  Record<string, unknown>
> & {
  readonly reason: string;
} {
  const { id, type, modelName, modelId, actionName, headers } = event;
  const [shard] = shardsIn(modelId);
  const about = { eventId: id, type, model: modelName, modelId, action: actionName };
  const fields = { handler, ...about, ...(shard && { shard: String(shard) }), ...traceOf(headers) };
  return { ...fields, eventCount, attempt, counted, reason: attemptReason(error) };
}
