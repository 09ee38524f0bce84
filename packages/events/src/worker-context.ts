import type { Clock } from '@framework/core';
import type { AttemptFailureHook } from './call/attempt-failure.js';
import type { DeliverySettings } from './delivery-settings.js';
import { StoreBackoff } from './waking/store-backoff.js';

/** What all parts of one database's delivery share. */
export interface WorkerContext {
  readonly settings: DeliverySettings;
  readonly clock: Clock;
  /** Gives a number from 0 to 1, for jitter. */
  readonly random: () => number;
  /** Takes what cannot be thrown anywhere; never throws. */
  readonly onError: (error: unknown) => void;
  /** Takes every call of a handler that did not succeed; never throws. */
  readonly onAttemptFailed: AttemptFailureHook;
  /** Aborted when nothing new is to begin: what runs may finish. */
  readonly stopping: AbortSignal;
  /** Aborted when everything must end, finished or not. */
  readonly ended: AbortSignal;
}

/** A backoff by the settings, for one loop. */
export function storeBackoff({ clock, random, settings }: WorkerContext): StoreBackoff {
  return new StoreBackoff({
    clock,
    random,
    baseMs: settings.storeBackoffBaseMs,
    maxMs: settings.storeBackoffMaxMs,
  });
}
