import { observeWith } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';

import { TurnTime } from '../src/call/call-deadlines.js';
import { type DeliveryOverrides, type EngineSettings, engineSettings } from '../src/delivery-settings.js';
import { type DeliveryTuning, tuned } from '../src/delivery-tuning.js';
import type { WorkerContext } from '../src/worker-context.js';

/** Overrides of the settings by a test, including values that users cannot set. */
export type TestSettings = DeliveryOverrides & Partial<DeliveryTuning>;

/** All settings, with the overrides of a test. */
export function testSettings(settings: TestSettings = {}): EngineSettings {
  return engineSettings(tuned(settings));
}

/** The context of a part of a delivery whose process is not stopping; errors and failed attempts are ignored. */
export function workerContext(own: Partial<WorkerContext> = {}): WorkerContext {
  const { clock = new VirtualClock() } = own;
  return {
    settings: engineSettings(),
    clock,
    random: () => 1,
    onError: () => undefined,
    onAttemptFailed: () => undefined,
    observe: observeWith(undefined),
    turn: new TurnTime(clock),
    stopping: new AbortController().signal,
    ended: new AbortController().signal,
    ...own,
  };
}
