import { type ActionExecutor, InvariantViolationError } from '@framework/core';
import type { BlockedModels, DeliveryLog } from '@framework/core/adapter';

import type { AbandonedCalls } from '../call/call-deadlines.js';
import type { HandlerCaller } from '../call/handler-caller.js';
import { type EngineSettings, type SettingName, settingIssue } from '../delivery-settings.js';
import type { RegisteredHandler } from '../handler/event-handler-registry.js';
import { type HandlerRetry, set } from '../handler/event-handler.js';
import type { EnvelopeFactory } from '../handler/row-envelope.js';
import type { CursorSaver } from '../slots/cursor-saver.js';
import type { EventLoopMonitor } from '../slots/lease-keeper.js';
import type { WorkerContext } from '../worker-context.js';
import type { BlockedWrites } from './batched-writes.js';
import type { LogReader } from './log-reader.js';

/** What the subscriptions of one database share. */
export interface SubscriptionDependencies {
  readonly context: WorkerContext;
  readonly blocked: Pick<BlockedModels, 'giveBack' | 'read'>;
  readonly executor: Pick<ActionExecutor, 'execute'>;
  readonly log: Pick<DeliveryLog, 'load'>;
  readonly envelopes: EnvelopeFactory;
  /** The abandoned calls of all handlers of the process. */
  readonly abandoned: AbandonedCalls;
  readonly reader: LogReader;
  readonly saver: CursorSaver;
  readonly writes: BlockedWrites;
  readonly watch: EventLoopMonitor;
  /** Called when a blocked model may be due. */
  readonly onBlocked: () => void;
}

/** What the parts of a subscription share. */
export interface HandlerDependencies extends SubscriptionDependencies {
  readonly policy: HandlerPolicy;
  readonly caller: HandlerCaller;
}

/** How events are delivered to one handler: its own options, otherwise the settings. */
export interface HandlerPolicy {
  /** The `event_type`s that it wants; `undefined` when it wants every event. */
  readonly eventTypes: ReadonlySet<string> | undefined;
  /** Whether it receives several events of a slot at a time. */
  readonly batches: boolean;
  /** 1 unless it receives batches. */
  readonly batchMax: number;
  readonly waitsWhenFailed: boolean;
  readonly concurrency: number;
  readonly timeoutMs: number;
  readonly retry: HandlerRetry;
  /** The longest wait after a call that did not count, unless `retry.backoffMaxMs` is less. */
  readonly outageBackoffMaxMs: number;
}

/**
 * Applies a handler's options to the settings.
 *
 * @throws InvariantViolationError `invariant-violation` when it declares a limit that is not a whole number within its range
 */
export function handlerPolicy(
  { handler, options, eventClasses }: RegisteredHandler,
  settings: EngineSettings,
): HandlerPolicy {
  const { concurrency = 1, timeoutMs = 1, batchMax = 1, retry = {} } = options;
  for (const [limit, value] of Object.entries({ concurrency, timeoutMs, batchMax, ...set(retry) })) {
    const fault = settingIssue(limit as SettingName, value);
    if (fault === undefined) continue;
    throw new InvariantViolationError(`Handler ${options.name} declares ${limit} ${value}: it ${fault}`);
  }
  const batches = 'handleBatch' in handler;
  return {
    eventTypes: eventClasses && new Set(eventClasses.keys()),
    batches,
    batchMax: batches ? (options.batchMax ?? settings.batchMax) : 1,
    waitsWhenFailed: batches && options.whenBatchFails === 'wait',
    concurrency: options.concurrency ?? settings.concurrency,
    timeoutMs: options.timeoutMs ?? settings.timeoutMs,
    retry: { ...settings.retry, ...set(options.retry ?? {}) },
    outageBackoffMaxMs: settings.outageBackoffMaxMs,
  };
}
