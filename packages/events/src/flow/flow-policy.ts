import { InvariantViolation } from '@framework/core';
import { type AttemptVerdict, attemptVerdict } from '../call/attempt-verdict.js';
import { settingFault } from '../delivery-ranges.js';
import type { DeliverySettings } from '../delivery-settings.js';
import { set } from '../delivery-settings.js';
import type { RegisteredHandler } from '../handler/event-handler-registry.js';
import type { HandlerRetry } from '../handler/handler-retry.js';

/** How one handler is delivered to: what it declares, laid over the settings. */
export interface FlowPolicy {
  /** Whether it receives several events of a slot at a time. */
  readonly batches: boolean;
  /** 1 unless it batches. */
  readonly batchMax: number;
  readonly waitsWhenFailed: boolean;
  readonly concurrency: number;
  readonly timeoutMs: number;
  readonly retry: HandlerRetry;
}

/**
 * Lays what a handler declares over the settings.
 *
 * @throws InvariantViolation `invariant-violation` when it declares a limit that is no whole number within its bounds
 */
export function flowPolicy({ handler, options }: RegisteredHandler, settings: DeliverySettings): FlowPolicy {
  const { concurrency = 1, timeoutMs = 1, batchMax = 1, retry = {} } = options;
  for (const [limit, value] of Object.entries({ concurrency, timeoutMs, batchMax, ...set(retry) })) {
    const fault = settingFault(limit, value);
    if (fault === undefined) continue;
    throw new InvariantViolation(`Handler ${options.name} declares ${limit} ${value}: it ${fault}`);
  }
  const batches = 'handleBatch' in handler;
  return {
    batches,
    batchMax: batches ? (options.batchMax ?? settings.batchMax) : 1,
    waitsWhenFailed: batches && options.whenBatchFails === 'wait',
    concurrency: options.concurrency ?? settings.concurrency,
    timeoutMs: options.timeoutMs ?? settings.timeoutMs,
    retry: { ...settings.retry, ...set(options.retry ?? {}) },
  };
}

/** What a failed call of the handler means for its events: where the handler waits, whatever it threw is an outage. */
export function verdictOf({ waitsWhenFailed }: FlowPolicy, thrown: unknown): AttemptVerdict {
  return waitsWhenFailed ? 'outage' : attemptVerdict(thrown);
}
