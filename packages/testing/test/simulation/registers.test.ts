import { expect, test } from 'vitest';
import { registersSimulation, withLosses } from './registers-simulation.js';

const seedsDefault = Number(process.env['SIMULATION_SEEDS'] ?? 120);
/** What ends a run is its bound of steps and of virtual time; a busy machine only takes longer. */
const timeout = 900_000;

test('one seed leads to the same run, step by step', async () => {
  for (const seed of [1, 2, 3, 4, 5]) {
    const simulation = registersSimulation();
    const [one, other] = [
      await simulation.run(seed, { trace: true }),
      await simulation.run(seed, { trace: true }),
    ];
    expect(one.trace.length).toBeGreaterThan(100);
    expect(one.trace.join('\n')).toBe(other.trace.join('\n'));
    expect((await registersSimulation().run(seed)).digest).toBe(one.digest);
  }
});

test('actions have their effect once or not at all, whatever fails on their way', { timeout }, async () => {
  const { counts } = await registersSimulation({ handles: false }).explore({ seeds: 3 * seedsDefault });
  const met = ['late-commit', 'group', 'chain of pending versions', 'repeated', 'process killed', 'failover'];
  expect(met.filter((what) => !counts.has(what))).toEqual([]);
});

test(
  'every event reaches every handler in order, and what handlers do has its effect once',
  { timeout },
  async () => {
    const { counts } = await registersSimulation().explore({ seeds: seedsDefault });
    const met = ['dead letters replayed', 'pause', 'operator-pause', 'fewer-shards', 'partition', 'unknown'];
    expect(met.filter((what) => !counts.has(what))).toEqual([]);
  },
);

test('after a failover that loses commits, nothing else is lost', { timeout }, async () => {
  const { counts } = await registersSimulation({ faults: withLosses }).explore({ seeds: seedsDefault });
  expect(counts.get('failover with losses')).toBeGreaterThan(0);
});
