import { expect, test } from 'vitest';
import { registersSimulation } from './registers-simulation.js';
import { seedCountOf, timeout } from './seed-count.js';

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
  const simulation = registersSimulation({ handles: false });
  const { counts } = await simulation.explore({ seeds: seedCountOf(0.52) });
  const met = [
    'late-commit',
    'group',
    'chain of pending versions',
    'repeated',
    'key used again',
    'process killed',
    'failover',
  ];
  expect(met.filter((what) => !counts.has(what))).toEqual([]);
});
