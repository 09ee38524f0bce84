import { expect, test } from 'vitest';
import { seedCountOf, timeout } from './seed-count.js';
import { thirdPartiesSimulation } from './third-parties-simulation.js';

test(
  'a busy model catches up after its third party was unavailable, and none of its events becomes a dead letter',
  { timeout },
  async () => {
    const rates: number[] = [];
    const seeds = seedCountOf(0.02);
    const { counts } = await thirdPartiesSimulation(rates).explore({ seeds });
    expect(counts.get('failed attempt')).toBeGreaterThan(seeds);
    expect(rates.length).toBeGreaterThan(seeds);
  },
);
