import {
  type Account,
  RandomExecutions,
  SuiteContext,
  decimal,
  firstShard,
  hops,
} from '@framework/conformance';
import { describe, expect, test } from 'vitest';

import { ConnectionLostError, type MemoryFault } from '../../src/memory/index.js';
import { seededRandom } from '../../src/simulation/choices.js';
import { MemoryFixture } from './memory-fixture.js';

const runs = 200;
const seed = Number(process.env['TEST_SEED'] ?? Date.now() % 2 ** 31);

/** Every message takes some turns of the event loop; some writes, and questions about their outcome, lose their connection. */
function misbehaving(random: () => number, lossShare: number): MemoryFault {
  return async ({ operation, way }) => {
    await hops(Math.floor(random() * 5));
    const isLossy = operation.startsWith('persist') ? random() < lossShare : operation === 'is-committed';
    if (isLossy && (operation !== 'is-committed' || (way === 'request' && random() < 0.6)))
      throw new ConnectionLostError();
  };
}

describe(`random executions in memory (seed ${seed})`, () => {
  test.each([
    ['a slow store', 0],
    ['a slow store that loses connections', 0.3],
  ])(
    'on %s lose nothing, repeat nothing, read nothing that is undone, and never stall',
    async (_what, lossShare) => {
      for (let run = 0; run < runs; run++) {
        const random = seededRandom(seed + run);
        const fixture = new MemoryFixture();
        const context = new SuiteContext();
        context.open(fixture);
        const executions = new RandomExecutions(fixture, random);
        const store = (): Promise<Account> => context.openAccount(firstShard, { balance: decimal('1000') });
        const misbehave = (): void => fixture.faults.inject(misbehaving(random, lossShare));
        const faults = await executions.run(store, misbehave);
        expect(faults, `TEST_SEED=${seed + run}`).toEqual([]);
      }
    },
  );
});
