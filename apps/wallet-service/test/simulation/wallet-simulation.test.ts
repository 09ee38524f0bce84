import { expect, test } from 'vitest';
import { type TransferEnds, walletSimulation } from './wallet-simulation.js';

/** What ends a run is its bound of steps and of virtual time; a busy machine only takes longer. */
const timeout = 900_000;

test('money is conserved and every transfer comes to one end, whatever happens', { timeout }, async () => {
  const ends: TransferEnds = { completed: 0, refunded: 0 };
  const { counts } = await walletSimulation(ends).explore();
  expect(ends.completed).toBeGreaterThan(0);
  expect(ends.refunded).toBeGreaterThan(0);
  expect(['failover', 'process killed', 'unknown', 'repeated'].filter((what) => !counts.has(what))).toEqual(
    [],
  );
});
