import type { DeliverableEvent, DeliveryStore, BlockedEvent } from '@framework/core/adapter';
import { seededRandom } from '@framework/testing';
import pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { allSlots, beginningOf, openStore } from './fixtures/delivery-store.js';
import { EventWriter } from './fixtures/event-writer.js';
import { lockWaiters } from './fixtures/lock-waiters.js';
import { alone, untried } from './fixtures/blocked-events.js';

const handler = 'notify';
const never = 1e9;
const everywhere = allSlots.map((slot) => ({ handler, slot }));
const step = { limit: 100 };
const models = ['a', 'b', 'c'];
const versions = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

describe('the turn of a model', () => {
  test.each([1, 2, 3, 4])(
    'is never lost while its events are blocked, tried, skipped and replayed concurrently (seed %i)',
    async (seed) => {
      const random = seededRandom(seed);
      const { store, events } = await withBlockable();
      const unblocked = events.toSorted(() => random() - 0.5);
      const blocker = async (): Promise<void> => {
        for (let next = unblocked.splice(0, 2); next.length > 0; next = unblocked.splice(0, 2)) {
          await store.blocked.block(next);
        }
      };
      const tryHeads = async (): Promise<boolean> => {
        const heads = await store.blocked.dueHeads(everywhere, 2);
        for (const head of heads) {
          const dead = random() < 0.3;
          await store.blocked.endAttempt(
            head,
            undefined,
            dead ? { kind: 'dead', error: 'no' } : { kind: 'done' },
          );
        }
        return heads.length > 0;
      };
      const retrier = async (): Promise<void> => {
        while (unblocked.length > 0) await tryHeads();
      };
      const operator = async (): Promise<void> => {
        while (unblocked.length > 0) {
          const filter = { modelId: models[Math.floor(random() * models.length)]! };
          await (random() < 0.5
            ? store.deadLetters.skip(filter, step)
            : store.deadLetters.replay(filter, step));
        }
      };
      await Promise.all([blocker(), blocker(), blocker(), retrier(), retrier(), operator(), operator()]);

      // Whatever is left is due now, or waits only for an operator.
      for (let busy = true; busy;)
        busy = (await tryHeads()) || (await store.deadLetters.replay({}, step)).count > 0;
      expect((await store.deadLetters.find({}, { limit: 100 })).items).toEqual([]);
      expect(await store.blocked.models(everywhere, { limit: 10 })).toEqual([]);
    },
  );
});

test('an event that is blocked while the one before it is removed is not forgotten', async () => {
  const { store, url, events } = await withBlockable();
  await store.blocked.block(events.slice(0, 1));
  const [head] = await store.blocked.dueHeads(everywhere, 10);
  const session = await sessionOn(url);
  await session.query('begin');
  await session.query(`
    with blocked as (
      insert into eventlog.parked_events (handler, event_id, slot, model_name, model_id, model_version, ordinal,
        event_type, event, attempts, dead, suspect)
      select handler, gen_random_uuid(), slot, model_name, model_id, model_version + 1, ordinal,
        event_type, event, attempts, dead, suspect from eventlog.parked_events
      returning slot, handler, model_name, model_id)
    select eventlog.settle_parked_models(array_agg(slot), array_agg(handler), array_agg(model_name), array_agg(model_id))
    from blocked`);
  const ended = store.blocked.endAttempt(head!, alone('first'), { kind: 'done' });
  await vi.waitFor(async () => expect(await lockWaiters(url)).toBe(1), 30_000);
  await session.query('commit');
  await ended;
  expect(await store.blocked.dueHeads(everywhere, 10)).toHaveLength(1);
});

async function sessionOn(url: string): Promise<pg.Client> {
  const session = new pg.Client({ connectionString: url });
  await session.connect();
  onTestFinished(() => session.end());
  return session;
}

/** A store whose log has events of some models, to be blocked under valid leases. */
async function withBlockable(): Promise<{
  readonly store: DeliveryStore;
  readonly url: string;
  readonly events: readonly BlockedEvent[];
}> {
  const { store, url } = await openStore();
  await store.cursors.register([{ name: handler, aliases: [], startFrom: 'beginning' }]);
  const writer = await EventWriter.connect(url);
  for (const model of models) await writer.write(model, ...versions);
  const { leases } = await store.leases.renew('one', [handler], never);
  const tokens = new Map(leases.map(({ slot, token }) => [slot, token]));
  const { events } = await store.log.read(allSlots, await beginningOf(store), 100);
  return { store, url, events: events.map((event) => blockable(event, tokens.get(event.slot)!)) };
}

function blockable(event: DeliverableEvent, token: string): BlockedEvent {
  return { ...untried, handler, token, event };
}
