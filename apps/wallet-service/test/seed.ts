/** The seed of this run; `TEST_SEED` repeats an earlier run. Titles print it. */
export const seed: number = Number(process.env['TEST_SEED'] ?? Date.now() % 2 ** 31);
