const offset = 0x811c9dc5;
const prime = 0x01000193;

/**
 * The slot into which the events of a model fall.
 *
 * @see http://www.isthe.com/chongo/tech/comp/fnv/ (FNV-1a, 32 bits)
 */
export function slotOf(modelId: string, slotCount: number): number {
  let hash = offset;
  for (const byte of Buffer.from(modelId)) hash = Math.imul(hash ^ byte, prime);
  return (hash >>> 0) % slotCount;
}
