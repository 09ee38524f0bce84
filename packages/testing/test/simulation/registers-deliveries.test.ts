import { expect, test } from 'vitest';
import { registersSimulation } from './registers-simulation.js';
import { seedCountOf, timeout } from './seed-count.js';

test(
  'every event reaches every handler in order, and each handler has its effect once',
  { timeout },
  async () => {
    const { counts } = await registersSimulation().explore({ seeds: seedCountOf(0.1) });
    const met = [
      'dead letters replayed',
      'lost lease',
      'pause',
      'operator-pause',
      'fewer-shards',
      'partition',
      'unknown',
    ];
    const ends = ['stop amid calls', 'stop amid handlers', 'stop with leases given back'];
    met.push(
      ...ends,
      'rollout',
      'start of another version',
      'call that took too long',
      'call while a handler is paused',
      'restart needed',
      'every process ends',
    );
    expect(met.filter((what) => !counts.has(what))).toEqual([]);
  },
);
