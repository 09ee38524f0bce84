import type { Change, ChangeSet, GroupOutcome, PersistOutcome, TransactionManager } from '../src/adapter.js';
import { type GroupSettings, defaultGroupSettings } from '../src/config/settings.js';
import { CommitQueue } from '../src/group-commit/commit-queue.js';
import { PendingCommit, PendingVersions } from '../src/group-commit/pending-commit.js';
import { observeWith } from '../src/observer.js';
import { FakeRepository } from './fake-repository.js';
import { ManualClock, settled } from './manual-clock.js';
import { global } from './test-executor.js';
import { Wallet } from './wallet.js';

const repository = new FakeRepository(Wallet);

/** The outcome of a write, chosen by a test: one for each plan, or an error for all. */
type Answer = readonly GroupOutcome[] | Error;

/** One write that was sent and waits for its answer. */
interface Sent {
  readonly actions: readonly string[];
  /** Whether it is an ordinary commit, not a group. */
  readonly isCommit: boolean;
  /** Whether it waits for locks as long as a statement may take. */
  readonly waitsForLocks: boolean;
  /** Reports that the write has found another session's lock, and waits for it. */
  readonly lockOut: () => Promise<void>;
  readonly answer: (answer?: Answer) => Promise<void>;
}

/** A writer whose manager answers when the test says so. */
export class ManualWriter {
  readonly staged = new PendingVersions();
  readonly sent: Sent[] = [];
  readonly asked: {
    readonly action: string | undefined;
    readonly session: unknown;
    readonly answer: (is: boolean | Error) => Promise<void>;
  }[] = [];
  readonly clock = new ManualClock();
  readonly #writer: CommitQueue;

  constructor(settings: Partial<GroupSettings> = {}) {
    const manager: Partial<TransactionManager> = {
      shard: global,
      persist: (changes, { shortLockWait = false, onLockedOut = () => undefined } = {}) =>
        this.#send([changes], { isCommit: true, waitsForLocks: !shortLockWait, onLockedOut }).then(
          ([outcome]) => one(outcome),
        ),
      persistAll: (group) =>
        this.#send(group, { isCommit: false, waitsForLocks: false, onLockedOut: () => undefined }),
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
    this.#writer = new CommitQueue(
      manager as TransactionManager,
      { ...defaultGroupSettings, ...settings },
      this.staged,
      this.clock,
      observeWith(undefined),
    );
  }

  /** The names of the plans that were sent and not answered. */
  get open(): readonly string[] {
    return this.sent.map(({ actions }) => actions.join('+'));
  }

  /** The names of the plans that wait for locks as long as a statement may take. */
  get patient(): readonly string[] {
    return this.sent.filter(({ waitsForLocks }) => waitsForLocks).map(({ actions }) => actions.join('+'));
  }

  /** The names of the plans that were sent as ordinary commits. */
  get commits(): readonly string[] {
    return this.sent.filter(({ isCommit }) => isCommit).map(({ actions }) => actions.join('+'));
  }

  /** Queues a plan that changes a wallet, and continues its pending version. */
  add(name: string, ...wallets: readonly Wallet[]): Promise<PendingCommit> {
    return this.#add({ action: { id: name } }, wallets);
  }

  /** Queues such a plan for an action that a handler executes. */
  addOfHandler(name: string, ...wallets: readonly Wallet[]): Promise<PendingCommit> {
    return this.#add({ action: { id: name }, key: { key: name, source: 'event' } }, wallets);
  }

  async #add(about: object, wallets: readonly Wallet[]): Promise<PendingCommit> {
    const bases = wallets.flatMap(({ id }) => this.staged.get(Wallet, id.value) ?? []);
    const changes = wallets.map(({ id, createdDate }): Change => {
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
    const set = { shard: global, ...about, changes, events: [] } as unknown as ChangeSet;
    const plan = new PendingCommit(set, bases);
    plan.outcome.catch(() => undefined);
    this.#writer.add(plan);
    await settled();
    return plan;
  }

  /** Lets the full time pass for which a plan may wait. */
  async passWait(): Promise<void> {
    // The tick in which the plan arrived does not count.
    for (let tick = 0; tick <= 4; tick++) await this.clock.wake();
  }

  /** Answers a write that was sent. */
  async answer(actions: string, answer?: Answer): Promise<void> {
    await this.#sentOf(actions).answer(answer);
  }

  /** Lets a write that was sent find another session's lock, for which it waits. */
  async lockOut(actions: string): Promise<void> {
    await this.#sentOf(actions).lockOut();
  }

  #sentOf(actions: string): Sent {
    const sent = this.sent.find((each) => each.actions.join('+') === actions);
    if (sent === undefined)
      throw new Error(
        `${actions} does not wait for an answer; waiting are: ${this.open.join(', ') || 'none'}`,
      );
    return sent;
  }

  #send(
    group: readonly ChangeSet[],
    { onLockedOut, ...kind }: Pick<Sent, 'isCommit' | 'waitsForLocks'> & { readonly onLockedOut: () => void },
  ): Promise<readonly GroupOutcome[]> {
    return new Promise((resolve, reject) => {
      const sent: Sent = {
        actions: group.map(({ action }) => action.id),
        ...kind,
        lockOut: () => {
          onLockedOut();
          return settled();
        },
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
  if (typeof outcome === 'string' && outcome !== 'single') return outcome;
  throw outcome ?? new Error('no outcome');
}

/** The error of a plan; `undefined` when it was written. */
export async function errorOf(plan: PendingCommit): Promise<unknown> {
  return plan.outcome.then(
    () => undefined,
    (error: unknown) => error,
  );
}
