import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { registersSimulation } from './registers-simulation.js';
import { seedCountOf, timeout } from './seed-count.js';

test('one seed always leads to the same run, step by step', async () => {
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

test('no run leaves anything in memory, however many follow', async () => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const runs: WeakRef<object>[] = [];
  const simulation = registersSimulation({
    check: ({ given }) => void runs.push(new WeakRef(given)),
    faults: ['kill', 'crash-after', 'pause', 'stop', 'silent'],
  });
  for (let seed = 1; seed <= 20; seed++) await simulation.run(seed);
  await expect
    .poll(() => {
      collectGarbage();
      return runs.filter((run) => run.deref() !== undefined).length;
    })
    .toBeLessThanOrEqual(1);
});

test('actions have their effect once or not at all, whatever fails on the way', { timeout }, async () => {
  const simulation = registersSimulation({ handles: false });
  const { counts } = await simulation.explore({ seeds: seedCountOf(0.32) });
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
