/** What ends a run is its bound of steps and of virtual time; a busy machine, or more seeds, only take longer. */
export const timeout = 0;

/** How many seeds of all that are asked for a simulation gets: of 5,000, or of `SIMULATION_SEEDS`. */
export function seedCountOf(share: number): number {
  return Math.ceil(share * Number(process.env['SIMULATION_SEEDS'] ?? 5_000));
}
