const inAll = Number(process.env['SIMULATION_SEEDS'] ?? 750);

/** The timeout of a test in milliseconds, which only a hanging run reaches: runs have limits of steps and of virtual time. */
export const timeout: number = 900_000 * Math.max(1, inAll / 750);

/** How many seeds a simulation gets: a share of 750, or of `SIMULATION_SEEDS` if that is set. */
export function seedCountOf(share: number): number {
  return Math.ceil(share * inAll);
}
