/** The seed of this run; `TEST_SEED` repeats an earlier run. Titles print it. */
export const seed: number = Number(process.env['TEST_SEED'] ?? Date.now() % 2 ** 31);

/** Gives numbers from 0 to 1, the same ones for the same seed. */
export function randomOf(start: number): () => number {
  let state = start >>> 0;
  return () => {
    // Mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
