import { expect, test } from 'vitest';
import { type TransferEnds, shardsAwaySimulation, walletSimulation } from './wallet-simulation.js';

const seedsInAll = Number(process.env['SIMULATION_SEEDS'] ?? 750);
/** The share of all seeds of the project's simulations. */
const seeds = Math.ceil(0.28 * seedsInAll);
/** The timeout of a test, for a run in which nothing happens any more: runs have limits of steps and of virtual time. */
const timeout = 900_000 * Math.max(1, seedsInAll / 750);

test('money is conserved and every transfer ends in one state, whatever happens', { timeout }, async () => {
  const ends: TransferEnds = { completed: 0, refunded: 0 };
  const { counts } = await walletSimulation(ends).explore({ seeds });
  expect(ends.completed).toBeGreaterThan(0);
  expect(ends.refunded).toBeGreaterThan(0);
  expect(['failover', 'process killed', 'unknown', 'repeated'].filter((what) => !counts.has(what))).toEqual(
    [],
  );
});

test(
  'a decided transfer between available shards does not wait for transfers of a shard that is away',
  { timeout },
  async () => {
    const lastSteps: number[] = [];
    await shardsAwaySimulation(lastSteps).explore({ seeds: Math.ceil(0.04 * seedsInAll) });
    expect(lastSteps.length).toBeGreaterThan(0);
  },
);
