import type {
  DeliverableEvent,
  DuePlace,
  BlockedHead,
  BlockedModel,
  BlockedPlace,
} from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { getEventListeners } from 'node:events';
import { describe, expect, test } from 'vitest';

import { HeldSlot } from '../src/slots/held-slot.js';
import { QuarantineGate } from '../src/subscription/quarantine.js';
import { RetryLoop } from '../src/subscription/retry-loop.js';
import { deposited } from './account.js';
import { gate } from './delivery-bench.js';
import { type TestSettings, testSettings, workerContext } from './worker-context.js';

type LoopOptions = ConstructorParameters<typeof RetryLoop>[0];

/** A subscription whose attempts last until a test ends them. */
class SubscriptionOfOne {
  readonly handler: string;
  paused = false;
  waitsForBlocked = true;
  inQuarantine: readonly HeldSlot[] = [];
  /** The slots on which it has not started. */
  readonly unstarted = new Set<number>();
  retriesOfSlotMax = Infinity;
  /** The events that were tried, and the models that were checked, in order. */
  readonly tried: string[] = [];
  readonly alone = new Map<string, AbortSignal>();
  readonly #ends = new Map<string, () => void>();

  constructor(handler: string) {
    this.handler = handler;
  }

  get slots() {
    const released = ({ slot }: HeldSlot): void => {
      this.tried.push(`settled ${slot}`);
      this.inQuarantine = this.inQuarantine.filter((each) => each.slot !== slot);
    };
    const has = ({ slot }: HeldSlot): boolean => !this.unstarted.has(slot);
    return { inQuarantine: this.inQuarantine, released, has };
  }

  get dispatch() {
    return {
      retriesMax: 2,
      retriesOfSlotMax: this.retriesOfSlotMax,
      waitMaxMs: 7_000,
      retry: async ({ event: { id } }: BlockedHead, _slot: HeldSlot, alone?: AbortSignal): Promise<void> => {
        this.tried.push(id);
        if (alone !== undefined) this.alone.set(id, alone);
        const { opened, open } = gate();
        this.#ends.set(id, open);
        await opened;
      },
      check: ({ id }: DeliverableEvent): void => void this.tried.push(`check ${id}`),
    };
  }

  knowBlocked(_slot: HeldSlot, { id }: DeliverableEvent): void {
    this.tried.push(`know ${id}`);
  }

  end(id: string): void {
    this.#ends.get(id)!();
  }
}

/** The loop of one database; a test decides what is due. */
class Looping {
  readonly clock = new VirtualClock();
  readonly stopping = new AbortController();
  readonly errors: unknown[] = [];
  readonly one = new SubscriptionOfOne('one');
  readonly other = new SubscriptionOfOne('other');
  readonly subscriptions = new Map(
    [this.one, this.other].map((subscription) => [subscription.handler, subscription]),
  );
  readonly held = new Map<string, HeldSlot>();
  /** What is due; an attempt removes it when it ends. */
  due: BlockedHead[] = [];
  nextDueMs: number | undefined;
  suspectPlaces: readonly BlockedPlace[] = [];
  /** The places in each query for due events, with the models that it leaves out. */
  readonly asked: (readonly [places: readonly DuePlace[], except: readonly string[]])[] = [];
  /** The size beyond which events were requested without payload and params. */
  bytesMax: number | undefined;
  /** Places that were queried for suspects. */
  readonly askedSuspects: (readonly string[])[] = [];
  /** Runs while the database is answering. */
  onAsked = (): void => undefined;
  /** Places whose next due time was queried. */
  readonly askedNext: (readonly string[])[] = [];
  /** Errors for the next queries. */
  readonly failures: Error[] = [];
  readonly loop: RetryLoop;
  readonly running: Promise<void>;

  constructor(settings: TestSettings = {}, prepare: (looping: Looping) => void = () => undefined) {
    const { clock, stopping } = this;
    for (const handler of ['one', 'other']) {
      for (const slot of [0, 1]) {
        const held = new HeldSlot({ handler, slot, token: `${handler} ${slot}`, abandoned: false });
        this.held.set(held.token, held);
      }
    }
    const slots = (): readonly HeldSlot[] => [...this.held.values()];
    this.loop = new RetryLoop({
      context: workerContext({
        clock,
        settings: testSettings(settings),
        stopping: stopping.signal,
        onError: (error) => this.errors.push(error),
      }),
      blocked: {
        dueHeads: async (
          places: readonly DuePlace[],
          limit: number,
          { bytesMax, except }: { readonly bytesMax: number; readonly except: readonly BlockedModel[] },
        ) => {
          const failure = this.failures.shift();
          if (failure !== undefined) throw failure;
          this.bytesMax = bytesMax;
          this.asked.push([places, except.map(({ handler, modelId }) => `${handler} ${modelId}`)]);
          const isLeft = ({ handler, event }: BlockedHead): boolean =>
            places.some((place) => place.handler === handler && place.slot === event.slot) &&
            !except.some((model) => model.handler === handler && model.modelId === event.modelId);
          this.onAsked();
          return this.due.filter(isLeft).slice(0, limit);
        },
        suspectPlaces: async (places: readonly BlockedPlace[]) => {
          this.askedSuspects.push(places.map(({ handler, slot }) => `${handler} ${slot}`));
          this.onAsked();
          return this.suspectPlaces;
        },
        nextDueMs: async (places: readonly BlockedPlace[]) => {
          this.askedNext.push(places.map(({ handler, slot }) => `${handler} ${slot}`));
          return this.nextDueMs;
        },
      },
      keeper: {
        get slots() {
          return slots();
        },
        get: (token: string) => this.held.get(token),
      },
      subscriptions: this.subscriptions,
      gate: new QuarantineGate(clock),
    } as unknown as LoopOptions);
    prepare(this);
    this.running = this.loop.run();
  }

  block(event: DeliverableEvent, own: Partial<BlockedHead> = {}): void {
    const handler = own.handler ?? 'one';
    const token = `${handler} ${event.slot}`;
    this.due.push({
      handler,
      event,
      attempts: 1,
      openCount: 0,
      uncounted: 0,
      suspect: false,
      token,
      ...own,
    });
  }

  /** Ends attempts, after which the events are no longer blocked. */
  async end(subscription: SubscriptionOfOne, ...ids: readonly string[]): Promise<void> {
    this.due = this.due.filter(
      ({ handler, event }) => handler !== subscription.handler || !ids.includes(event.id),
    );
    for (const id of ids) subscription.end(id);
    await this.settled();
  }

  async look(): Promise<void> {
    this.loop.wake();
    await this.settled();
  }

  /** Lets everything continue that has nothing left to wait for. */
  settled(): Promise<void> {
    return new Promise((resolve) => setImmediate(resolve));
  }
}

function attempts({ tried }: SubscriptionOfOne): readonly string[] {
  return tried.filter((what) => !what.includes(' '));
}

const [a1, a2, b1, e1, i1, m1] = [
  deposited('a', 1),
  deposited('a', 2),
  deposited('b', 1),
  deposited('e', 1),
  deposited('i', 1),
  deposited('m', 1),
] as const;

describe('the loop of retries', () => {
  test('tries due events, and checks their model when no other is due', async () => {
    const looping = new Looping({ readBytesMax: 1_000, readMax: 10 }, (one) => one.block(a1));
    await looping.settled();
    expect(looping.one.tried).toEqual(['know a1', 'a1']);
    expect([looping.bytesMax, looping.askedSuspects]).toEqual([100, []]);
    looping.block(a2);
    await looping.end(looping.one, 'a1');
    expect(looping.one.tried.slice(2)).toEqual(['know a2', 'a2']);
    await looping.end(looping.one, 'a2');
    expect(looping.one.tried.slice(4)).toEqual(['check a2']);
    // No listeners pile up, however long the slot is held.
    expect(getEventListeners(looping.held.get('one 0')!.lost, 'abort')).toEqual([]);
    await looping.look();
    expect(looping.one.tried).toHaveLength(5);
  });

  test('tries nothing in a slot before its subscription has started there', async () => {
    const looping = new Looping();
    looping.one.unstarted.add(1);
    looping.block(a1);
    looping.block(b1);
    await looping.look();
    expect(attempts(looping.one)).toEqual(['a1']);
    expect(looping.asked[0]?.[0].map(({ handler, slot }) => `${handler} ${slot}`)).toEqual([
      'one 0',
      'other 0',
      'other 1',
    ]);
    await looping.end(looping.one, 'a1');
    expect(looping.askedNext.at(-1)).toEqual(['one 0', 'other 0', 'other 1']);
    // Lost and gained again under the same token, while the database is answering.
    looping.one.unstarted.delete(1);
    looping.onAsked = () => void looping.one.unstarted.add(1);
    await looping.look();
    expect(attempts(looping.one)).toEqual(['a1']);
    looping.onAsked = () => undefined;
    looping.one.unstarted.delete(1);
    await looping.look();
    expect(attempts(looping.one)).toEqual(['a1', 'b1']);
  });

  test('checks a model once its subscription has started in the slot, and never after the slot was lost', async () => {
    const looping = new Looping();
    looping.block(a1);
    looping.block(b1);
    await looping.look();
    looping.one.unstarted.add(0);
    looping.held.delete('one 1');
    await looping.end(looping.one, 'a1', 'b1');
    await looping.look();
    expect(looping.one.tried).toEqual(['know a1', 'know b1', 'a1', 'b1']);
    looping.one.unstarted.delete(0);
    await looping.look();
    await looping.look();
    expect(looping.one.tried.slice(4)).toEqual(['check a1']);
  });

  test('requests only as many events of a handler as may run or be next, less those it has', async () => {
    const looping = new Looping({}, (one) => {
      one.block(a1);
      one.block(e1, { handler: 'other' });
      one.other.retriesOfSlotMax = 1;
    });
    await looping.settled();
    const place = { waitMaxMs: 7_000, headsMax: 4 };
    const [one0, one1, other0, other1] = [
      { ...place, handler: 'one', slot: 0 },
      { ...place, handler: 'one', slot: 1 },
      { ...place, handler: 'other', slot: 0 },
      { ...place, handler: 'other', slot: 1 },
    ];
    expect(looping.asked).toEqual([[[one0, one1, other0, other1], []]]);
    await looping.look();
    expect(looping.asked.slice(1)).toEqual([
      [
        [
          { ...one0, headsMax: 3 },
          { ...one1, headsMax: 3 },
          // No more of the other slot of that handler may be tried.
          { ...other1, headsMax: 3 },
        ],
        ['one a', 'other e'],
      ],
    ]);
  });

  test('requests no events of a handler that has enough or is paused', async () => {
    const looping = new Looping({}, (one) => {
      for (const event of [a1, b1, e1, i1]) one.block(event);
      one.other.paused = true;
    });
    await looping.settled();
    expect(looping.asked[0]![0].map(({ handler }) => handler)).toEqual(['one', 'one']);
    expect(attempts(looping.one)).toEqual(['a1', 'b1']);
    await looping.look();
    expect([looping.asked.length, looping.errors]).toEqual([1, []]);
  });

  test('begins the next retries as soon as there is room, and then queries for more', async () => {
    const looping = new Looping({}, (one) => {
      for (const event of [a1, b1, e1, i1]) one.block(event);
    });
    await looping.settled();
    await looping.end(looping.one, 'a1');
    expect([attempts(looping.one), looping.asked.length]).toEqual([['a1', 'b1', 'e1'], 1]);
    await looping.end(looping.one, 'b1');
    expect([attempts(looping.one), looping.asked.length]).toEqual([['a1', 'b1', 'e1', 'i1'], 2]);
  });

  test('requests more events of a handler without a next one, whatever other handlers have', async () => {
    const looping = new Looping({}, (one) => {
      for (const event of [a1, b1, e1]) one.block(event);
      one.block(i1, { handler: 'other' });
    });
    await looping.settled();
    await looping.end(looping.other, 'i1');
    expect(looping.asked).toHaveLength(2);
  });

  test('takes no more from one slot than allowed, and the rest from other slots', async () => {
    const looping = new Looping({}, (one) => {
      one.one.retriesOfSlotMax = 1;
      for (const event of [a1, e1, b1]) one.block(event);
    });
    await looping.settled();
    expect(attempts(looping.one)).toEqual(['a1', 'b1']);
    await looping.end(looping.one, 'a1');
    expect(attempts(looping.one)).toEqual(['a1', 'b1', 'e1']);
  });

  test('takes no more from one slot than allowed, counting the events that it already has', async () => {
    const looping = new Looping({}, (one) => {
      one.one.retriesOfSlotMax = 2;
      one.block(a1);
    });
    await looping.settled();
    for (const event of [e1, i1]) looping.block(event);
    await looping.look();
    expect(attempts(looping.one)).toEqual(['a1', 'e1']);
    expect(looping.one.tried).not.toContain('know i1');
  });

  test('ignores events of a lost slot or of a handler that it does not have', async () => {
    const looping = new Looping({}, (one) => {
      one.held.set('gone 0', new HeldSlot({ handler: 'gone', slot: 0, token: 'gone 0', abandoned: false }));
      one.block(a1, { token: 'of another process' });
    });
    await looping.settled();
    looping.block(b1);
    await looping.look();
    expect(looping.one.tried).toEqual(['know b1', 'b1']);
    expect(looping.errors).toEqual([]);
  });

  test.each([false, true])(
    'drops the work of a handler that was retired while the database was answering (in quarantine: %s)',
    async (isInQuarantine) => {
      const looping = new Looping({}, (one) => {
        if (isInQuarantine) one.one.inQuarantine = [one.held.get('one 0')!];
        one.onAsked = () => void one.subscriptions.delete('one');
        one.block(a1);
      });
      await looping.settled();
      expect([looping.one.tried, looping.errors]).toEqual([[], []]);
    },
  );

  test('releases the next events of a handler that is paused, and finds them again later', async () => {
    const looping = new Looping({}, (one) => {
      for (const event of [a1, b1, e1]) one.block(event);
    });
    await looping.settled();
    looping.one.paused = true;
    await looping.end(looping.one, 'a1');
    expect(attempts(looping.one)).toEqual(['a1', 'b1']);
    looping.one.paused = false;
    await looping.look();
    expect(attempts(looping.one)).toEqual(['a1', 'b1', 'e1']);
  });

  test.each([
    ['is paused', ({ one }: Looping) => (one.paused = true)],
    ['stops with its process', ({ stopping }: Looping) => stopping.abort()],
  ])('tries no event whose handler %s while it waits for a lone attempt', async (_what, end) => {
    const looping = new Looping({}, (one) => {
      one.block(e1, { openCount: 1 });
      one.block(b1);
    });
    await looping.settled();
    end(looping);
    await looping.end(looping.one, 'e1');
    expect(attempts(looping.one)).toEqual(['e1']);
  });

  test('begins with lone attempts, and continues with suspects', async () => {
    const looping = new Looping({}, (one) => {
      one.block(a1);
      one.block(b1, { suspect: true });
      one.block(e1, { openCount: 1 });
    });
    await looping.settled();
    expect(attempts(looping.one)).toEqual(['e1']);
    await looping.end(looping.one, 'e1');
    expect(attempts(looping.one)).toEqual(['e1', 'b1', 'a1']);
    expect([...looping.one.alone.keys()]).toEqual(['e1']);
  });

  test.each([
    [1, 1_000],
    [4, 8_000],
    [40, 2 ** 31 - 1],
  ])(
    'tries an event alone for longer after each process that died: %i so far',
    async (openCount, aloneMs) => {
      const looping = new Looping({}, (one) => one.block(e1, { openCount }));
      await looping.settled();
      const alone = looping.one.alone.get('e1')!;
      // The loop is stopped, because it would poll all the time.
      looping.stopping.abort();
      await looping.clock.advance(aloneMs - 1);
      expect(alone.aborted).toBe(false);
      await looping.clock.advance(1);
      expect(alone.aborted).toBe(true);
    },
  );

  test('stops waiting for an event whose slot is lost, however long its call takes', async () => {
    const looping = new Looping({ quarantineMs: 1_000_000 }, (one) => {
      one.block(e1, { openCount: 1 });
      one.block(b1);
    });
    await looping.settled();
    expect(attempts(looping.one)).toEqual(['e1']);
    looping.held.get('one 0')!.lose();
    looping.held.delete('one 0');
    await looping.settled();
    expect(attempts(looping.one)).toEqual(['e1', 'b1']);
  });

  test('does not wait for an event whose slot was lost before its turn', async () => {
    const looping = new Looping({ quarantineMs: 1_000_000 }, (one) => {
      one.block(e1, { openCount: 1 });
      one.block(b1, { openCount: 1 });
      one.block(a1);
    });
    await looping.settled();
    looping.held.get('one 1')!.lose();
    looping.held.delete('one 1');
    await looping.end(looping.one, 'e1');
    looping.block(m1);
    await looping.end(looping.one, 'a1');
    expect(attempts(looping.one)).toEqual(['e1', 'a1', 'b1', 'm1']);
  });

  test('lets slots be read further once none of their suspects is left or being tried', async () => {
    const looping = new Looping({}, (one) => {
      const [first, second] = [one.held.get('one 0')!, one.held.get('one 1')!];
      one.one.inQuarantine = [first, second];
      one.suspectPlaces = [{ handler: 'one', slot: 0 }];
      one.block(a1, { suspect: true });
    });
    await looping.settled();
    expect(looping.one.tried).toEqual(['settled 1', 'know a1', 'a1']);
    expect(looping.askedSuspects).toEqual([['one 0', 'one 1']]);
    looping.suspectPlaces = [];
    await looping.look();
    expect(looping.one.tried).toHaveLength(3);
    await looping.end(looping.one, 'a1');
    expect(looping.one.tried.slice(3)).toEqual(['settled 0', 'check a1']);
  });

  test('polls again at once when more events may be due than one statement returns', async () => {
    const looping = new Looping({ dueMax: 1 }, (one) => {
      for (const event of [a1, b1]) one.block(event);
    });
    await looping.settled();
    expect([attempts(looping.one), looping.asked.length]).toEqual([['a1', 'b1'], 3]);
  });

  test.each([
    ['soon while something is tried', a1, undefined, 250],
    ['when the next one is due', undefined, 700, 700],
    ['soon when the next one is due already', undefined, 0, 250],
    ['after a while when the next one is due later', undefined, 60_000, 2_000],
    ['after a while when no event is due later', undefined, undefined, 2_000],
  ])('polls again %s', async (_when, event, nextDueMs, waitMs) => {
    const looping = new Looping({}, (one) => {
      if (event !== undefined) one.block(event);
      one.nextDueMs = nextDueMs;
      one.other.paused = true;
    });
    await looping.settled();
    await looping.clock.advance(waitMs - 1);
    expect(looping.asked).toHaveLength(1);
    await looping.clock.advance(1);
    expect(looping.asked).toHaveLength(2);
    // A paused handler has no events that could be tried.
    expect(looping.askedNext[0]).toEqual(event === undefined ? ['one 0', 'one 1'] : undefined);
  });

  test('polls once per lease while nothing is known to be blocked, and otherwise at once', async () => {
    const looping = new Looping({ leaseMs: 9_000 }, ({ one, other }) => {
      one.waitsForBlocked = false;
      other.waitsForBlocked = false;
    });
    await looping.clock.advance(8_999);
    await looping.look();
    expect(looping.asked).toHaveLength(0);
    await looping.clock.advance(9_000);
    expect(looping.asked).toHaveLength(1);
    looping.other.waitsForBlocked = true;
    await looping.look();
    expect(looping.asked).toHaveLength(2);
  });

  test('reports each failure of the database, and polls again after growing waits until it answers', async () => {
    const [down, late] = [new Error('down'), new Error('late')];
    const looping = new Looping({ storeBackoffBaseMs: 100 }, ({ failures }) => failures.push(down, down));
    await looping.settled();
    expect(looping.errors).toEqual([down]);
    await looping.clock.advance(100);
    expect(looping.errors).toEqual([down, down]);
    await looping.clock.advance(199);
    expect(looping.asked).toHaveLength(0);
    await looping.clock.advance(1);
    expect(looping.asked).toHaveLength(1);
    looping.failures.push(late);
    await looping.look();
    expect(looping.errors).toEqual([down, down, late]);
    await looping.clock.advance(100);
    expect(looping.asked).toHaveLength(2);
  });

  test('begins no more attempts when delivery stops, and ends', async () => {
    const looping = new Looping({}, (one) => {
      for (const event of [a1, b1, e1, m1]) one.block(event);
    });
    await looping.settled();
    looping.stopping.abort();
    await looping.look();
    await looping.running;
    await looping.end(looping.one, 'a1', 'b1');
    expect(attempts(looping.one)).toEqual(['a1', 'b1']);
    expect(looping.asked).toHaveLength(1);
  });
});
