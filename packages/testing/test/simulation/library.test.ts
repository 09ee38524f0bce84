import { expect, test } from 'vitest';
import {
  Simulation,
  SimulationError,
  type SimulationGiven,
  type SimulationOptions,
  callOf,
} from '../../src/simulation/index.js';
import { library } from './library-simulation.js';
import { Book, LendOrReturnAction } from './library.js';
import { seedCountOf, timeout } from './seed-count.js';

const seeds = seedCountOf(0.1);

test('every loan is counted once', { timeout }, async () => {
  const { counts } = await library.explore({ seeds });
  expect(counts.get('ok')).toBeGreaterThan(0);
});

/** One book that is lent and given back. */
const emma = {
  models: [Book],
  actions: ({ clock, repository }) => [new LendOrReturnAction(clock, repository(Book))],
  given: () => ({ models: [Book.acquire('Emma')] }),
  call: (_choices, { models: [book] }) =>
    callOf(LendOrReturnAction, { bookId: book?.id.value ?? '', readerId: 'somebody' }),
} satisfies SimulationOptions<SimulationGiven>;

test('an invariant that is broken for a while is reported at the commit that breaks it', async () => {
  const wrong = new Simulation({
    ...emma,
    watch: () => (commit) => {
      for (const { state, title } of commit.changed(Book))
        if (state === 'LENT') throw new Error(`${title} is not there`);
    },
    check: async ({ repository }) => {
      for (const { state } of await repository(Book).findAll())
        if (state === 'LENT') throw new Error('it is lent in the end');
    },
  });
  const found: string[] = [];
  for (const seed of [1, 2, 3, 4]) found.push((await wrong.run(seed)).violations.join('; '));
  expect(found).toContainEqual(expect.stringMatching(/^after LendOrReturnAction \S+: Emma is not there$/));
});

test(
  'an observer of commits starts again with the commits that survive a failover',
  { timeout: 60_000 },
  async () => {
    let told: string[] = [];
    const withLosses = new Simulation({
      ...emma,
      watch: () => {
        told = [];
        return ({ action }) => void told.push(action.id);
      },
      check: ({ commits }) => expect(told).toEqual(commits.map(({ action }) => action.id)),
      faults: ['lossy-failover', 'slow'],
    });
    const { counts } = await withLosses.explore({ from: 1, seeds: 60 });
    expect(counts.get('failover with losses')).toBeGreaterThan(0);
  },
);

test('a simulation whose calls are all refused, or that commits nothing, has tested nothing and says so', async () => {
  const unknown = { bookId: 'of no book', readerId: 'somebody' };
  const refused = new Simulation({ ...emma, call: () => callOf(LendOrReturnAction, unknown) });
  await expect(refused.explore({ seeds: 3 })).rejects.toThrow(
    /committed nothing in 3 runs.*tested nothing.*× refused: /,
  );
  const silent = new Simulation({ ...emma, call: () => undefined });
  await expect(silent.explore({ seeds: 3 })).rejects.toThrow('tested nothing (no call was refused)');
});

test('a failing seed is simplified and reports its steps', { timeout: 300_000 }, async () => {
  const wrong = new Simulation({
    ...emma,
    check: ({ commits }) => {
      if (commits.length > 3) throw new Error('there are more than 3 commits');
    },
    faults: [],
    callsMax: 6,
  });
  const failure: unknown = await wrong.explore({ from: 1, seeds: 20 }).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(SimulationError);
  const { trace, message } = failure as SimulationError;
  expect(message).toContain('SIMULATION_FROM=');
  expect(trace.filter((line) => line.includes('call')).length).toBeLessThanOrEqual(4);
});
