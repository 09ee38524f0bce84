import type { HintChannel } from '@framework/core';
import type { WorkerContext } from '../worker-context.js';
import { untilAborted } from './until-aborted.js';
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
  await untilAborted(stopping);
  await unlisten();
}
