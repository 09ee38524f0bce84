import { Account, CreditAccountAction, decimal, firstShard, principal } from '@framework/conformance';
import { ActionExecutor } from '@framework/core';
import { useIdSource } from '@framework/core/adapter';
import { Delivery } from '@framework/events';
import { expect, test } from 'vitest';

import { VirtualClock } from '../../src/index.js';
import { ConnectionLostError, MemoryServer } from '../../src/memory/index.js';
import { seededRandom } from '../../src/simulation/choices.js';
import { driven } from '../../src/specification/delivery-run.js';
import { onCredit } from '../specification/accounts.js';
import { MemoryFixture, suiteSharding } from './memory-fixture.js';

const nothing = (): undefined => undefined;

/** All requests of two processes to their databases, with their times, while a seed makes the processes misbehave. */
async function traceOf(seed: number, groupCommit: boolean): Promise<readonly string[]> {
  const random = seededRandom(seed);
  const clock = new VirtualClock();
  const putBack = useIdSource({
    nowMs: () => clock.now().getTime(),
    fillRandom: (bytes) => bytes.set(bytes.map(() => random() * 256)),
  });
  try {
    const trace: string[] = [];
    const server = new MemoryServer(suiteSharding, { clock });
    const accounts = [1, 2, 3].map(() => Account.blank(firstShard, clock.now(), { balance: decimal('0') }));
    const processes = ['one', 'other'].map((name) => {
      const { databases, accounts: repository, tags, faults } = new MemoryFixture(server);
      faults.inject(async ({ operation, way, changes = [] }) => {
        const ids = changes.map(({ action, events: [event] }) => `${action.id} ${event?.id}`).join();
        trace.push(`${clock.elapsedMs()} ${name} ${operation} ${way} ${ids}`);
        if (random() < 0.3) await clock.sleep(Math.floor(random() * 50));
        if (random() < 0.05) throw new ConnectionLostError();
      });
      const actions = [new CreditAccountAction(clock, repository)];
      const repositories = [repository, tags];
      const shared = { databases, clock, random };
      const executor = new ActionExecutor({
        namespace: 'same.way',
        actions,
        repositories,
        groupCommit,
        ...shared,
      });
      const handlers = [
        onCredit(
          async ({ eventId }) => {
            trace.push(`${clock.elapsedMs()} ${name} handles ${eventId}`);
            if (random() < 0.2) throw new Error('now and then');
            await clock.sleep(1);
          },
          { startFrom: 'beginning' },
        ),
      ];
      const delivery = new Delivery({
        executor,
        handlers,
        onAttemptFailed: nothing,
        onError: nothing,
        onRecovered: nothing,
        ...shared,
      });
      delivery.start();
      return { executor, repository, delivery };
    });
    for (const account of accounts) await driven(processes[0]!.repository.put(account), clock);
    const credits = processes.flatMap(({ executor }) =>
      [...accounts, ...accounts].map(({ id }) =>
        executor.execute(principal, CreditAccountAction, { accountId: id, amount: '1' }).then(
          () => trace.push('credited'),
          (error: { readonly code: string }) => trace.push(error.code),
        ),
      ),
    );
    await driven(Promise.all(credits), clock);
    await clock.advance(60_000);
    await driven(Promise.all(processes.map(({ delivery }) => delivery.stop())), clock);
    return trace;
  } finally {
    putBack();
  }
}

test.each([false, true])(
  'a run repeats itself when a seed determines its time, ids and random numbers (group commit: %s)',
  async (groupCommit) => {
    const traces = new Set<string>();
    for (let seed = 1; seed <= 5; seed++) {
      const trace = await traceOf(seed, groupCommit);
      expect(trace.filter((line) => line === 'credited').length).toBeGreaterThan(0);
      expect(trace.filter((line) => line.includes('handles')).length).toBeGreaterThan(0);
      expect(await traceOf(seed, groupCommit)).toEqual(trace);
      traces.add(trace.join());
    }
    expect(traces.size).toBe(5);
  },
);
