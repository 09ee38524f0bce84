import type { HintChannel } from '@framework/core';
import type { WorkerContext } from '../worker-context.js';
import { untilDone } from './until-done.js';

/** Calls back at the hints of other processes until delivery stops; hints only save time, polling finds everything. */
export async function listenForHints(
  context: WorkerContext,
  channel: Pick<HintChannel, 'listen'>,
  onHint: () => void,
): Promise<void> {
  const { stopping } = context;
  const unlisten = await untilDone(context, stopping, () => channel.listen(onHint));
  if (unlisten === undefined) return;
  await aborted(stopping);
  await unlisten();
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
