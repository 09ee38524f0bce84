import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * How many of these objects are still in memory after garbage collections, in turns of the event loop of their own: what is being
 * awaited when it is called may keep some a little longer.
 */
export async function keptInMemory(objects: readonly WeakRef<object>[]): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let count = objects.length;
  for (let turn = 0; turn < 20 && count > 0; turn++) {
    await nextTurn();
    collect();
    count = objects.filter((each) => each.deref() !== undefined).length;
  }
  return count;
}
