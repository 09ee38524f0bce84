import { VirtualClock } from '@framework/testing';

import { defaultDeliverySettings } from '../src/index.js';
import type { WorkerContext } from '../src/worker-context.js';

/** What a part of a delivery gets whose process is not stopping; errors and failed attempts go nowhere. */
export function workerContext(own: Partial<WorkerContext> = {}): WorkerContext {
  return {
    settings: defaultDeliverySettings,
    clock: new VirtualClock(),
    random: () => 1,
    onError: () => undefined,
    onAttemptFailed: () => undefined,
    stopping: new AbortController().signal,
    ended: new AbortController().signal,
    ...own,
  };
}
