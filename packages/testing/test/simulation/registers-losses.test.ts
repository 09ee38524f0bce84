import { expect, test } from 'vitest';
import { registersSimulation, withLosses } from './registers-simulation.js';
import { seedCountOf, timeout } from './seed-count.js';

test('nothing else is lost after a failover that loses commits', { timeout }, async () => {
  const { counts } = await registersSimulation({ faults: withLosses }).explore({ seeds: seedCountOf(0.2) });
  expect(counts.get('failover with losses')).toBeGreaterThan(0);
});
