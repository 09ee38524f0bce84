import type { LogPartitions } from '@framework/core';
import { untilDone } from '../waking/until-done.js';
import type { WorkerContext } from '../worker-context.js';

/** Creates partitions of the log ahead of time and drops old ones, once per interval until delivery stops. */
export async function keepPartitions(context: WorkerContext, partitions: LogPartitions): Promise<void> {
  const { settings, clock, stopping } = context;
  while (!stopping.aborted) {
    await untilDone(context, stopping, async () => {
      await partitions.create();
      if (settings.retentionMs > 0) await partitions.drop(settings.retentionMs);
    });
    await clock.sleep(settings.partitionsMs, stopping);
  }
}
