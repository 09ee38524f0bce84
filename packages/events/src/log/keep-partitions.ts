import type { LogPartitions } from '@framework/core';
import type { WorkerContext } from '../worker-context.js';

/** How long it waits for the next try when a long reader of the log has prevented the change. */
const retryMs = 60_000;

/** Creates partitions of the log ahead of time and drops old ones, once per interval until delivery stops. */
export async function keepPartitions(context: WorkerContext, partitions: LogPartitions): Promise<void> {
  const { settings, clock, stopping, onError } = context;
  const isDone = async (work: () => Promise<unknown>): Promise<boolean> => {
    try {
      await work();
      return true;
    } catch (error) {
      onError(error);
      return false;
    }
  };
  while (!stopping.aborted) {
    const isCreated = await isDone(() => partitions.create());
    const isDropped =
      settings.retentionMs === 0 || (await isDone(() => partitions.drop(settings.retentionMs)));
    const waitMs = isCreated && isDropped ? settings.partitionsMs : Math.min(retryMs, settings.partitionsMs);
    await clock.sleep(waitMs, stopping);
  }
}
