const poolBytes = 4_096;

const pool = new Uint8Array(poolBytes);
let usedCount = poolBytes;

/**
 * Fills an array of at most 4,096 bytes with random ones of the platform's generator.
 *
 * Many are drawn at once: asking the generator costs as much for a few bytes as for thousands.
 */
export function fillRandom(bytes: Uint8Array): void {
  if (usedCount + bytes.length > poolBytes) {
    crypto.getRandomValues(pool);
    usedCount = 0;
  }
  bytes.set(pool.subarray(usedCount, usedCount + bytes.length));
  // Nobody reads them twice, also not from memory.
  pool.fill(0, usedCount, usedCount + bytes.length);
  usedCount += bytes.length;
}
