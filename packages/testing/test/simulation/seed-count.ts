const inAll = Number(process.env['SIMULATION_SEEDS'] ?? 5_000);

/** The timeout of a test, for a run in which nothing happens any more: runs have limits of steps and of virtual time. */
export const timeout: number = 900_000 * Math.max(1, inAll / 5_000);

/** How many of the seeds a simulation gets: of 5,000, or of `SIMULATION_SEEDS`. */
export function seedCountOf(share: number): number {
  return Math.ceil(share * inAll);
}
