import { expect, test } from 'vitest';
import { type TransferEnds, walletSimulation } from './wallet-simulation.js';

/** What ends a run is its bound of steps and of virtual time; a busy machine, or more seeds, only take longer. */
const timeout = 0;
/** Of all seeds that the project's simulations run. */
const seeds = Math.ceil(0.08 * Number(process.env['SIMULATION_SEEDS'] ?? 5_000));

test('money is conserved and every transfer comes to one end, whatever happens', { timeout }, async () => {
  const ends: TransferEnds = { completed: 0, refunded: 0 };
  const { counts } = await walletSimulation(ends).explore({ seeds });
  expect(ends.completed).toBeGreaterThan(0);
  expect(ends.refunded).toBeGreaterThan(0);
  expect(['failover', 'process killed', 'unknown', 'repeated'].filter((what) => !counts.has(what))).toEqual(
    [],
  );
});
