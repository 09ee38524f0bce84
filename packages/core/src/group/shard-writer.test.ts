import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { FakeRepository } from '../../test/fake-repository.js';
import { ManualClock } from '../../test/manual-clock.js';
import { global, openWallet } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import {
  CommitOutcomeUnknownException,
  ConstraintViolationException,
  ShardUnavailableException,
} from '../errors/storage-exceptions.js';
import type { Change, ChangeSet } from '../persistence/change-set.js';
import type { GroupOutcome, PersistOutcome, TransactionManager } from '../persistence/transaction-manager.js';
import { type GroupSettings, defaultGroupSettings } from './group-settings.js';
import { QueuedPlan } from './queued-plan.js';
import { ShardWriter } from './shard-writer.js';
import { StagedModels } from './staged-models.js';

const repository = new FakeRepository(Wallet);
const constraint = new ConstraintViolationException(global, { constraint: 'a', table: 'b' });
const [a, b, c] = [openWallet(), openWallet(), openWallet()];
const { createdDate } = a;

/** The outcome of a write that a test gives: of each plan, or an error of all. */
type Answer = readonly GroupOutcome[] | Error;

/** One write that was sent and waits for its answer. */
interface Sent {
  readonly actions: readonly string[];
  readonly answer: (answer?: Answer) => Promise<void>;
}

/** A writer whose manager answers when the test says so. */
class Writing {
  readonly staged = new StagedModels();
  readonly sent: Sent[] = [];
  readonly asked: {
    readonly action: string | undefined;
    readonly session: unknown;
    readonly answer: (is: boolean | Error) => Promise<void>;
  }[] = [];
  readonly clock = new ManualClock();
  readonly #writer: ShardWriter;

  constructor(settings: Partial<GroupSettings> = {}) {
    const manager: Partial<TransactionManager> = {
      shard: global,
      persist: (changes) => this.#send([changes]).then(([outcome]) => one(outcome)),
      persistAll: (group) => this.#send(group),
      isCommitted: ({ actionId: action, session }) =>
        new Promise((resolve, reject) => {
          const answer = (is: boolean | Error): Promise<void> => {
            if (is instanceof Error) reject(is);
            else resolve(is);
            return settled();
          };
          this.asked.push({ action, session, answer });
        }),
    };
    this.#writer = new ShardWriter(
      manager as TransactionManager,
      { ...defaultGroupSettings, ...settings },
      this.staged,
      this.clock,
    );
  }

  /** The names of what is sent and not answered. */
  get open(): readonly string[] {
    return this.sent.map(({ actions }) => actions.join('+'));
  }

  /** Queues a plan that changes a wallet, and continues what is staged of it. */
  async add(name: string, ...wallets: readonly Wallet[]): Promise<QueuedPlan> {
    const bases = wallets.flatMap(({ id }) => this.staged.get(Wallet, id.value) ?? []);
    const changes = wallets.map(({ id }): Change => {
      const expectedVersion = this.staged.get(Wallet, id.value)?.change.model.version ?? 1;
      const model = new Wallet({
        id,
        createdDate,
        state: 'OPENED',
        ownerId: 'owner-1',
        balance: 1n,
        version: expectedVersion + 1,
      });
      return { kind: 'update', repository, model, expectedVersion, row: {} };
    });
    const set = { shard: global, action: { id: name }, changes, events: [] } as unknown as ChangeSet;
    const plan = new QueuedPlan(set, bases);
    plan.outcome.catch(() => undefined);
    this.#writer.add(plan);
    await settled();
    return plan;
  }

  /** Lets all the time pass for which a plan may wait. */
  async passWait(): Promise<void> {
    // The tick in which it came does not count.
    for (let tick = 0; tick <= 4; tick++) {
      void this.clock.wake();
      await settled();
    }
  }

  /** Answers a write that was sent. */
  async answer(actions: string, answer?: Answer): Promise<void> {
    const sent = this.sent.find((each) => each.actions.join('+') === actions);
    if (sent === undefined) throw new Error(`${actions} was not sent, but ${this.open.join(' and ')}`);
    await sent.answer(answer);
  }

  #send(group: readonly ChangeSet[]): Promise<readonly GroupOutcome[]> {
    return new Promise((resolve, reject) => {
      const sent: Sent = {
        actions: group.map(({ action }) => action.id),
        answer: (answer) => {
          this.sent.splice(this.sent.indexOf(sent), 1);
          if (answer instanceof Error) reject(answer);
          else resolve(answer ?? group.map(() => 'written'));
          return settled();
        },
      };
      this.sent.push(sent);
    });
  }
}

function one(outcome: GroupOutcome | undefined): PersistOutcome {
  if (typeof outcome === 'string' && outcome !== 'alone') return outcome;
  throw outcome ?? new Error('no outcome');
}

/** Lets everything run that waits for nothing but promises and the end of a turn of the event loop. */
async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

function unknown(action: string): CommitOutcomeUnknownException {
  return new CommitOutcomeUnknownException(global, action);
}

async function errorOf(plan: QueuedPlan): Promise<unknown> {
  return plan.outcome.then(
    () => undefined,
    (error: unknown) => error,
  );
}

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => vi.useRealTimers());

describe('a group that fails as a whole', () => {
  test('goes on side by side, plan by plan, where plans have no model in common', async () => {
    const writing = new Writing();
    await writing.add('first', openWallet());
    for (const [index, wallet] of [a, b, c].entries()) await writing.add(`p${index}`, wallet);
    await writing.answer('first');
    await writing.answer('p0+p1+p2', constraint);
    expect(writing.open).toEqual(['p0', 'p1', 'p2']);
  });

  test('goes on in halves, one after the other, where plans continue each other', async () => {
    const writing = new Writing();
    await writing.add('first', openWallet());
    const plans: QueuedPlan[] = [];
    for (const name of ['p0', 'p1', 'p2', 'p3']) plans.push(await writing.add(name, a));
    await writing.answer('first');
    await writing.answer('p0+p1+p2+p3', constraint);
    expect(writing.open).toEqual(['p0+p1']);
    await writing.answer('p0+p1');
    expect(writing.open).toEqual(['p2+p3']);
    await writing.answer('p2+p3', constraint);
    expect(writing.open).toEqual(['p2']);
    await writing.answer('p2', constraint);
    expect(writing.open).toEqual([]);
    expect(await Promise.all(plans.map(errorOf))).toMatchObject([
      undefined,
      undefined,
      constraint,
      { code: 'stale-record' },
    ]);
  });

  test('does not hold up plans of other models that come later', async () => {
    const writing = new Writing();
    await writing.add('first', openWallet());
    await writing.add('p0', a);
    await writing.add('p1', b);
    await writing.answer('first');
    await writing.answer('p0+p1', constraint);
    await writing.add('other', c);
    await writing.add('same', a);
    expect(writing.open).toEqual(['p0', 'p1', 'other']);
    await writing.answer('other');
    expect(writing.open).toEqual(['p0', 'p1']);
    await writing.answer('p0', constraint);
    expect(writing.open).toEqual(['p1']);
  });

  test('takes a bounded number of places', async () => {
    const writing = new Writing();
    await writing.add('first', openWallet());
    for (let index = 0; index < 12; index++) await writing.add(`p${index}`, openWallet());
    await writing.answer('first');
    await writing.sent[0]!.answer(constraint);
    expect(writing.open).toHaveLength(8);
    await writing.add('other', a);
    expect(writing.open.at(-1)).toBe('other');
    await writing.answer('p0');
    expect(writing.open).toHaveLength(9);
  });

  test('fails for all where the shard is unavailable', async () => {
    const writing = new Writing();
    await writing.add('first', openWallet());
    const plans = [await writing.add('p0', a), await writing.add('p1', b)];
    await writing.answer('first');
    const unavailable = new ShardUnavailableException(global, 'it is down');
    await writing.answer('p0+p1', unavailable);
    expect(await Promise.all(plans.map(errorOf))).toEqual([unavailable, unavailable]);
    expect(writing.open).toEqual([]);
  });
});

describe('a plan that waits behind a locked model', () => {
  test('is refused for certain when it was not sent in time, while the one that was sent goes on', async () => {
    const writing = new Writing();
    const sent = await writing.add('sent', a);
    const waiting = await writing.add('waiting', a);
    await vi.advanceTimersByTimeAsync(50);
    await writing.passWait();
    expect(await errorOf(waiting)).toMatchObject({ code: 'shard-unavailable', shard: global });
    expect(waiting.state).toBe('lost');
    expect(writing.open).toEqual(['sent']);
    await writing.answer('sent');
    expect(sent.state).toBe('written');
    expect(writing.open).toEqual([]);
  });

  test('is not refused before its time', async () => {
    const writing = new Writing();
    await writing.add('sent', a);
    const waiting = await writing.add('waiting', a);
    for (let tick = 0; tick < 4; tick++) {
      void writing.clock.wake();
      await settled();
    }
    expect(waiting.state).toBe('pending');
    await writing.answer('sent');
    expect(writing.open).toEqual(['waiting']);
  });

  test('is refused also when it was sent before in a group of which nothing was written', async () => {
    const writing = new Writing();
    await writing.add('locked', a);
    await vi.advanceTimersByTimeAsync(50);
    await writing.add('first', openWallet());
    for (let index = 0; index < 12; index++) await writing.add(`p${index}`, openWallet());
    const last = await writing.add('last', openWallet());
    await writing.answer('first');
    await writing.answer(writing.open.at(-1)!, constraint);
    expect(writing.open).not.toContain('last');
    await writing.passWait();
    expect(await errorOf(last)).toMatchObject({ code: 'shard-unavailable' });
    expect(writing.open).not.toContain('last');
  });

  test('lets what was built on it run again', async () => {
    const writing = new Writing();
    await writing.add('sent', a);
    const waiting = await writing.add('waiting', a);
    void writing.clock.wake();
    await settled();
    void writing.clock.wake();
    await settled();
    const later = await writing.add('later', a);
    for (let tick = 0; tick < 3; tick++) {
      void writing.clock.wake();
      await settled();
    }
    expect(await errorOf(waiting)).toMatchObject({ code: 'shard-unavailable' });
    expect(await errorOf(later)).toMatchObject({ code: 'stale-record' });
  });

  test('takes no place from plans of other models', async () => {
    const writing = new Writing({ queueMax: 3 });
    await writing.add('locked', a);
    await vi.advanceTimersByTimeAsync(50);
    await writing.add('awaited', b);
    for (let index = 0; index < 3; index++) await writing.add(`waiting${index}`, a);
    await expect(writing.add('one more', a)).rejects.toMatchObject({ code: 'shard-unavailable' });
    const others: QueuedPlan[] = [];
    for (let index = 0; index < 3; index++) others.push(await writing.add(`other${index}`, openWallet()));
    await expect(writing.add('other3', openWallet())).rejects.toMatchObject({ code: 'shard-unavailable' });
    await writing.answer('awaited');
    expect(writing.open).toEqual(['locked', 'other0+other1+other2']);
    await writing.add('another', c);
    await writing.answer('other0+other1+other2');
    expect(writing.open).toEqual(['locked', 'another']);
  });

  test('takes none either when it came while nobody knew that the model is locked', async () => {
    const writing = new Writing({ queueMax: 2 });
    await writing.add('locked', a);
    for (let index = 0; index < 2; index++) await writing.add(`waiting${index}`, a);
    await vi.advanceTimersByTimeAsync(50);
    await writing.add('other', b);
    expect(writing.open).toEqual(['locked', 'other']);
  });

  test('keeps no timer when nothing waits', async () => {
    const writing = new Writing();
    await writing.add('first', a);
    await writing.answer('first');
    await writing.add('second', b);
    expect(writing.clock.sleeps).toBe(0);
    await writing.add('third', b);
    expect(writing.clock.sleeps).toBe(1);
    await writing.answer('second');
    await writing.answer('third');
    void writing.clock.wake();
    await settled();
    expect(writing.clock.sleeps).toBe(1);
  });
});

describe('plans that a group could not hold', () => {
  test('are written side by side, and in order where they change the same model', async () => {
    const writing = new Writing();
    await writing.add('first', openWallet());
    for (const [name, wallet] of Object.entries({ p0: a, p1: a, p2: b })) await writing.add(name, wallet);
    await writing.answer('first');
    await writing.answer('p0+p1+p2', ['alone', 'alone', 'alone']);
    expect(writing.open).toEqual(['p0', 'p2']);
    await writing.answer('p0');
    expect(writing.open).toEqual(['p2', 'p1']);
  });
});

describe('a write that takes long', () => {
  test('does not hold up plans of other models, but those of its own', async () => {
    const writing = new Writing();
    await writing.add('slow', a);
    await writing.add('other', b);
    await writing.add('same', a);
    expect(writing.open).toEqual(['slow']);
    vi.advanceTimersByTime(50);
    expect(writing.open).toEqual(['slow', 'other']);
    await writing.answer('other');
    expect(writing.open).toEqual(['slow']);
    await writing.answer('slow');
    expect(writing.open).toEqual(['same']);
  });

  test('leaves a last place for the others', async () => {
    const writing = new Writing();
    for (let index = 0; index < 10; index++) {
      await writing.add(`p${index}`, openWallet());
      vi.advanceTimersByTime(50);
    }
    expect(writing.open).toHaveLength(9);
    await writing.answer('p3');
    expect(writing.open).toHaveLength(9);
    expect(writing.open.at(-1)).toBe('p9');
  });
});

/** A chain of two plans whose group ends as unknown, and one that waits behind it. */
async function unknownChain(): Promise<{
  readonly writing: Writing;
  readonly plans: readonly QueuedPlan[];
}> {
  const writing = new Writing();
  await writing.add('first', openWallet());
  const plans = [await writing.add('p0', a), await writing.add('p1', a)];
  await writing.answer('first');
  plans.push(await writing.add('p2', a));
  await writing.answer('p0+p1', [unknown('p0'), unknown('p1')]);
  return { writing, plans };
}

describe('a write whose outcome is unknown', () => {
  test('is asked for plan by plan, while plans of other models go on and those of its own wait', async () => {
    const { writing } = await unknownChain();
    expect(writing.asked.map(({ action }) => action)).toEqual(['p0', 'p1']);
    await writing.add('other', b);
    expect(writing.open).toEqual(['other']);
    await writing.asked[0]!.answer(true);
    expect(writing.open).toEqual(['other']);
    await writing.asked[1]!.answer(true);
    await writing.answer('other');
    expect(writing.open).toEqual(['p2']);
  });

  test('is looked for plan by plan, not by what an error for all of them knows of one', async () => {
    const writing = new Writing();
    await writing.add('first', openWallet());
    const plans = [await writing.add('p0', a), await writing.add('p1', b)];
    await writing.answer('first');
    await writing.answer('p0+p1', new CommitOutcomeUnknownException(global, 'p0', { session: 'of p0' }));
    expect(writing.asked).toMatchObject([
      { action: 'p0', session: undefined },
      { action: 'p1', session: undefined },
    ]);
    await writing.asked[0]!.answer(true);
    await writing.asked[1]!.answer(unknown('p1'));
    expect(await Promise.all(plans.map(errorOf))).toMatchObject([undefined, { actionId: 'p1' }]);
  });

  test('is unknown for each plan that was sent, and stale for none', async () => {
    const { writing, plans } = await unknownChain();
    await writing.asked[0]!.answer(unknown('p0'));
    await writing.asked[1]!.answer(unknown('p1'));
    const errors = await Promise.all(plans.map(errorOf));
    expect(errors).toMatchObject([
      { code: 'commit-outcome-unknown', actionId: 'p0' },
      { code: 'commit-outcome-unknown', actionId: 'p1' },
      { code: 'transient-storage' },
    ]);
  });

  test('is known to each plan that was sent, whatever was learnt of the one that it continues', async () => {
    const { writing, plans } = await unknownChain();
    await writing.asked[0]!.answer(unknown('p0'));
    await writing.asked[1]!.answer(true);
    expect(await errorOf(plans[1]!)).toBeUndefined();
  });

  test('is never written again, also where an adapter says it of a whole group', async () => {
    const writing = new Writing();
    await writing.add('first', openWallet());
    const plans = [await writing.add('p0', a), await writing.add('p1', b)];
    await writing.answer('first');
    await writing.answer('p0+p1', unknown('p0'));
    expect(writing.open).toEqual([]);
    expect(writing.asked.map(({ action }) => action)).toEqual(['p0', 'p1']);
    await writing.asked[0]!.answer(true);
    await writing.asked[1]!.answer(false);
    expect(await Promise.all(plans.map(errorOf))).toMatchObject([undefined, { code: 'transient-storage' }]);
  });
});

describe('what is staged of a model', () => {
  test('is what the first plan leaves, where the second one does not continue it', async () => {
    const writing = new Writing();
    const good = await writing.add('good', a);
    const stale = new QueuedPlan(good.changes, []);
    writing.staged.show(stale);
    expect(writing.staged.get(Wallet, a.id.value)?.plan).toBe(good);
    writing.staged.hide(stale);
    expect(writing.staged.get(Wallet, a.id.value)?.plan).toBe(good);
  });
});

describe('a plan that has ended', () => {
  test('keeps nothing of what it was built on', async () => {
    const writing = new Writing();
    await writing.add('first', openWallet());
    const plans = [await writing.add('p0', a), await writing.add('p1', a)];
    expect(plans[1]!.builtOn).toHaveLength(1);
    await writing.answer('first');
    await writing.answer('p0+p1');
    expect(plans[1]!.builtOn).toEqual([]);
  });
});
