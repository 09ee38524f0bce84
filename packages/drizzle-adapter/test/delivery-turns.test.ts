import {
  type BlockedFailure,
  type BlockedMove,
  type DeliveryStore,
  type SlotLease,
  positionAfter,
} from '@framework/core/adapter';
import { seededRandom } from '@framework/testing';
import pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { alone, failedOnce } from './fixtures/blocked-models.js';
import { allSlots, beginningOf, openStore } from './fixtures/delivery-store.js';
import { EventWriter } from './fixtures/event-writer.js';
import { lockWaiters } from './fixtures/lock-waiters.js';

const handler = 'notify';
const never = 1e9;
const step = { limit: 100 };
const models = ['a', 'b', 'c'];
const versions = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

describe('a blocked model', () => {
  test.each([1, 2, 3, 4])(
    'is neither lost nor moved back while its events fail and are tried, skipped and replayed concurrently (seed %i)',
    async (seed) => {
      const random = seededRandom(seed);
      const { store, failures, held } = await withFailures();
      const next = failures.toSorted(() => random() - 0.5);
      const reached = new Map<string, number>();
      let attemptCount = 0;
      const fail = async (): Promise<void> => {
        for (let some = next.splice(0, 2); some.length > 0; some = next.splice(0, 2))
          await store.blocked.fail(some);
      };
      const tryHeads = async (): Promise<boolean> => {
        const heads = await store.blocked.dueHeads(held, 2);
        const attempts = heads.map((head) => ({ head, attempt: alone(`${++attemptCount}`) }));
        await store.blocked.begin(attempts);
        for (const { head, attempt } of attempts) {
          const { modelId, position, token, event } = head;
          expect(position.modelVersion).toBeGreaterThanOrEqual(reached.get(modelId) ?? 0);
          reached.set(modelId, position.modelVersion);
          if (event === undefined) await store.blocked.move([{ ...head, ends: true }]);
          else if (random() < 0.3)
            await store.blocked.fail([{ ...failedOnce, handler, token, event, attempt, dead: true }]);
          else await store.blocked.move([{ ...head, position: positionAfter(event), ends: false }]);
        }
        return heads.length > 0;
      };
      const retrier = async (): Promise<void> => {
        while (next.length > 0) await tryHeads();
      };
      const operator = async (): Promise<void> => {
        while (next.length > 0) {
          const filter = { modelId: models[Math.floor(random() * models.length)]! };
          await (random() < 0.5
            ? store.deadLetters.skip(filter, step)
            : store.deadLetters.replay(filter, step));
        }
      };
      await Promise.all([fail(), fail(), fail(), retrier(), operator(), operator()]);

      // Whatever is left is due now, or waits only for an operator.
      for (let busy = true; busy;)
        busy = (await tryHeads()) || (await store.deadLetters.replay({}, step)).count > 0;
      expect((await store.deadLetters.find({}, { limit: 100 })).items).toEqual([]);
      expect(await store.blocked.models(held, { limit: 10 })).toEqual([]);
    },
  );
});

test.each([
  ['ends', (store: DeliveryStore, head: EndedHead) => store.blocked.move([{ ...head, ends: true }])],
  ['moves', (store: DeliveryStore, head: EndedHead) => store.blocked.move([{ ...head, ends: false }])],
])('a failure that is recorded while its model %s is not forgotten', async (_what, write) => {
  const { store, url, failures, held } = await withFailures();
  const [first, second] = failures.filter(({ event }) => event.modelId === 'a');
  await store.blocked.fail([first!]);
  const [head] = await store.blocked.dueHeads(held, 10);
  const session = await sessionOn(url);
  await session.query('begin');
  const { id, modelVersion, ordinal } = second!.event;
  await session.query(
    `update eventlog.blocked_models set event_id = $1, model_version = $2, ordinal = $3, error = 'second'`,
    [id, modelVersion, ordinal],
  );
  const written = write(store, { ...head!, position: positionAfter(first!.event) });
  await vi.waitFor(async () => expect(await lockWaiters(url)).toBe(1), 30_000);
  await session.query('commit');
  await written;
  expect((await store.deadLetters.find({}, step)).items).toMatchObject([{ error: 'second', event: { id } }]);
});

type EndedHead = Omit<BlockedMove, 'ends'>;

async function sessionOn(url: string): Promise<pg.Client> {
  const session = new pg.Client({ connectionString: url });
  await session.connect();
  onTestFinished(() => session.end());
  return session;
}

/** A store whose log has events of some models, and their failures under valid leases. */
async function withFailures(): Promise<{
  readonly store: DeliveryStore;
  readonly url: string;
  readonly failures: readonly BlockedFailure[];
  readonly held: readonly SlotLease[];
}> {
  const { store, url } = await openStore();
  await store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
  const writer = await EventWriter.connect(url);
  for (const model of models) await writer.write(model, ...versions);
  const { leases: held } = await store.leases.renew('one', [handler], never);
  const tokens = new Map(held.map(({ slot, token }) => [slot, token]));
  const { events } = await store.log.read(allSlots, await beginningOf(store), 100);
  const failures = events.map((event) => {
    return { ...failedOnce, handler, token: tokens.get(event.slot)!, event };
  });
  return { store, url, failures, held };
}
