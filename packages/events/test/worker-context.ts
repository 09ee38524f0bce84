import { VirtualClock } from '@framework/testing';

import { type DeliveryOverrides, type EngineSettings, engineSettings } from '../src/delivery-settings.js';
import { type DeliveryTuning, tuned } from '../src/delivery-tuning.js';
import type { WorkerContext } from '../src/worker-context.js';

/** What a test changes in the settings, also of what no user can. */
export type TestSettings = DeliveryOverrides & Partial<DeliveryTuning>;

/** All settings, with what a test changes in them. */
export function testSettings(settings: TestSettings = {}): EngineSettings {
  return engineSettings(tuned(settings));
}

/** What a part of a delivery gets whose process is not stopping; errors and failed attempts go nowhere. */
export function workerContext(own: Partial<WorkerContext> = {}): WorkerContext {
  return {
    settings: engineSettings(),
    clock: new VirtualClock(),
    random: () => 1,
    onError: () => undefined,
    onAttemptFailed: () => undefined,
    stopping: new AbortController().signal,
    ended: new AbortController().signal,
    ...own,
  };
}
