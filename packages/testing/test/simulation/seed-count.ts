const inAll = Number(process.env['SIMULATION_SEEDS'] ?? 1_500);

/** The timeout of a test in milliseconds, which only a hanging run reaches: runs have limits of steps and of virtual time. */
export const timeout: number = 900_000 * Math.max(1, inAll / 1_500);

/** How many seeds a simulation gets: a share of 1,500, or of `SIMULATION_SEEDS` if that is set. */
export function seedCountOf(share: number): number {
  return Math.ceil(share * inAll);
}
