/**
 * For adapters: the slot of the log into which the events of a model fall, the same in every process and for ever.
 *
 * @param slotCount into how many slots the log is cut
 * @see https://datatracker.ietf.org/doc/html/draft-eastlake-fnv FNV-1a, 32 bits, over UTF-16 code units
 */
export function slotOf(modelId: string, slotCount: number): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < modelId.length; index++) {
    hash = Math.imul(hash ^ modelId.charCodeAt(index), 0x01000193);
  }
  return ((hash ^ (hash >>> 16)) >>> 0) % slotCount;
}
