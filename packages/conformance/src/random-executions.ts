import {
  Action,
  ActionExecutor,
  type Clock,
  type ExecutorOptions,
  FrameworkError,
  type Principal,
  ShardedId,
  systemClock,
} from '@framework/core';

import { Account, sum } from './account.js';
import type { StorageFixture } from './storage-fixture.js';
import { at, firstShard, principal } from './suite-context.js';

const accountCount = 3;
const programCount = 14;
const hopsMax = 6;
/** How long all programs may take; only an execution that never ends takes this long. */
const deadlineMs = 60_000;
/** How long a database may continue with what it was sent before the connection was lost. */
const lateMs = 30_000;

/** Waits for some turns of the event loop. */
export async function hops(count: number): Promise<void> {
  for (let hop = 0; hop < count; hop++) await new Promise((resolve) => setImmediate(resolve));
}

/** One way in which an action reads: one account, several at once, two in parallel, or one in parallel with a read that fails. */
interface Read {
  readonly kind: 'one' | 'several' | 'beside' | 'broken';
  readonly places: readonly [number, number];
  readonly hops: number;
}

/** What an action does: it reads accounts, perhaps one of them several times, and credits the state that it read first or last. */
interface Program {
  readonly reads: readonly Read[];
  readonly refuses: boolean;
  readonly stages: readonly { readonly place: number; readonly from: 0 | -1 }[];
}

/** What a run of a program has read of an account. */
interface Sight {
  readonly place: number;
  readonly version: number;
  readonly balance: string;
}

class RefusedError extends Error {}

interface Params {
  readonly index: number;
}

/** Runs a program, which credits its index plus one. The log records only the index. */
class ProgramAction extends Action<Params> {
  static readonly actionName = 'random.program';
  readonly #run: (index: number, update: (account: Account) => void) => Promise<void>;

  constructor(run: (index: number, update: (account: Account) => void) => Promise<void>) {
    super(systemClock);
    this.#run = run;
  }

  protected perform(_principal: Principal, { index }: Params): Promise<void> {
    return this.#run(index, (account) => void this.plan().update(account));
  }
}

/** Runs simultaneous actions that read and depend on each other in every order, and checks what they leave behind. */
export class RandomExecutions {
  readonly #fixture: StorageFixture;
  readonly #random: () => number;
  readonly #executor: ActionExecutor;
  readonly #programs: readonly Program[];
  /** What the last run of each program has read. */
  readonly #sights = new Map<number, Sight[]>();
  #accounts: readonly Account[] = [];
  /** What was wrong with the groups that were written. */
  readonly #brokenGroups: string[] = [];

  /** @param random decides everything except what the storage and the event loop decide */
  constructor(
    fixture: StorageFixture,
    random: () => number,
    options: Pick<ExecutorOptions, 'groupCommit' | 'modelLocks'> = { groupCommit: true },
  ) {
    this.#fixture = fixture;
    this.#random = random;
    this.#programs = Array.from({ length: programCount }, () => this.#program());
    this.#executor = new ActionExecutor({
      ...options,
      namespace: 'random.executions',
      databases: fixture.databases,
      repositories: [fixture.accounts],
      actions: [new ProgramAction((index, update) => this.#perform(index, update))],
      retry: { attemptsMax: 100 },
      random: () => 0,
      clock: withoutWaits,
    });
  }

  /**
   * Executes all programs at once; returns what is wrong afterwards, which should be nothing.
   *
   * @param store stores one new account; called for each account before the programs begin
   * @param misbehave starts the faults; called when the accounts are stored, before the programs begin
   */
  async run(store: () => Promise<Account>, misbehave: () => void): Promise<readonly string[]> {
    this.#accounts = await Promise.all(Array.from({ length: accountCount }, store));
    misbehave();
    const outcomes: string[] = [];
    this.#watchGroups();
    const executions = this.#programs.map(async (_program, index) => {
      await hops(this.#upTo(hopsMax));
      const groupCommit = this.#random() < 0.9;
      const execution = this.#executor.execute(
        principal,
        ProgramAction,
        { index },
        groupCommit ? {} : { groupCommit },
      );
      outcomes[index] = await execution.then(() => 'done', codeOf);
    });
    const stuck = new Promise<'stuck'>((resolve) => setTimeout(resolve, deadlineMs, 'stuck').unref());
    if ((await Promise.race([Promise.all(executions), stuck])) === 'stuck') {
      const missing = this.#programs.flatMap((_program, index) => (index in outcomes ? [] : [index]));
      return [`never ended: ${missing.join(', ')} of ${JSON.stringify(this.#programs)}`];
    }
    // A write whose outcome is unknown may still be on its way.
    const endMs = performance.now() + lateMs;
    let faults = await this.#faults(outcomes);
    while (faults.length > 0 && performance.now() < endMs) {
      await hops(10);
      faults = await this.#faults(outcomes);
    }
    return [...this.#brokenGroups, ...faults];
  }

  async #faults(outcomes: readonly string[]): Promise<readonly string[]> {
    const each = this.#accounts.map((account, place) => this.#faultsOf(account, place, outcomes));
    return (await Promise.all(each)).flat();
  }

  /** Checks that each plan of a group expects, for every row, the version that the previous plan for this row writes. */
  #watchGroups(): void {
    const manager = this.#fixture.databases.transactionManager(firstShard);
    const persistAll = manager.persistAll.bind(manager);
    manager.persistAll = (group) => {
      const versions = new Map<string, number>();
      for (const { model, expectedVersion } of group.flatMap(({ changes }) => changes)) {
        const before = versions.get(model.id.value) ?? expectedVersion;
        if (before !== expectedVersion)
          this.#brokenGroups.push(`lost: after version ${before} a group expects ${expectedVersion}`);
        versions.set(model.id.value, model.version);
      }
      return persistAll(group);
    };
  }

  async #perform(index: number, update: (account: Account) => void): Promise<void> {
    const { reads, refuses, stages } = at(this.#programs, index);
    const seen = new Map<number, Account[]>();
    const sights: Sight[] = [];
    this.#sights.set(index, sights);
    for (const { kind, places, hops: count } of reads) {
      await hops(count);
      for (const [place, account] of await this.#read(kind, places)) {
        seen.set(place, [...(seen.get(place) ?? []), account]);
        sights.push({ place, version: account.version, balance: account.balance });
      }
    }
    if (refuses) throw new RefusedError();
    for (const { place, from } of stages) {
      const account = seen.get(place)?.at(from);
      if (account !== undefined) update(account.credit(String(index + 1)));
    }
  }

  async #read(
    kind: Read['kind'],
    [one, other]: Read['places'],
  ): Promise<readonly (readonly [number, Account])[]> {
    const { accounts } = this.#fixture;
    const idOf = (place: number): Account['id'] => at(this.#accounts, place).id;
    const read = async (place: number): Promise<readonly [number, Account]> => [
      place,
      await accounts.getById(idOf(place)),
    ];
    if (kind === 'one') return [await read(one)];
    if (kind === 'beside') return Promise.all([read(one), read(other)]);
    if (kind === 'broken') {
      // The second read fails, which ends perform while the first one continues.
      await Promise.all([read(one), accounts.getById(ShardedId.generate(Account, firstShard))]);
    }
    const places = one === other ? [one] : [one, other];
    const found = await accounts.findAllByIds(places.map(idOf));
    return found.map((account, index) => [at(places, index), account]);
  }

  async #faultsOf(account: Account, place: number, outcomes: readonly string[]): Promise<readonly string[]> {
    const { log } = this.#fixture.databases.transactionManager(firstShard);
    const { items } = await log.findByModel({ name: 'Account', id: account.id.value }, { limit: 1_000 });
    const stored = await this.#fixture.accounts.getById(account.id);
    const faults: string[] = [];
    const states = new Map([[account.version, account.balance]]);
    const counts = new Map<number, number>();
    let balance = account.balance;
    for (const [index, { modelVersion, payload }] of items.slice(1).entries()) {
      const { amount, newBalance } = payload as { readonly amount: string; readonly newBalance: string };
      balance = sum(balance, amount);
      if (modelVersion !== index + 2) faults.push(`version ${modelVersion} is number ${index + 2}`);
      if (newBalance !== balance)
        faults.push(`lost: ${newBalance} instead of ${balance} in version ${modelVersion}`);
      states.set(modelVersion, newBalance);
      counts.set(Number(amount) - 1, (counts.get(Number(amount) - 1) ?? 0) + 1);
    }
    if (stored.balance !== balance) faults.push(`lost: the row has ${stored.balance}, its events ${balance}`);
    if (stored.version !== items.length)
      faults.push(`the row has version ${stored.version} of ${items.length}`);
    for (const [index, outcome] of outcomes.entries()) {
      const count = counts.get(index) ?? 0;
      const wanted = this.#changes(index, place);
      if (outcome === 'done' ? count !== wanted : count > (outcome === 'commit-outcome-unknown' ? wanted : 0))
        faults.push(`${index} ended as ${outcome} and credited ${count} times instead of ${wanted}`);
      if (outcome === 'done' || outcome === 'refused')
        faults.push(...this.#unseen(index, place, outcome, states));
    }
    return faults.map((fault) => `account ${place}: ${fault}`);
  }

  /** Reports each state that the last run of a program has read although it was never committed. */
  #unseen(
    index: number,
    place: number,
    outcome: string,
    states: ReadonlyMap<number, string>,
  ): readonly string[] {
    const sights = this.#sights.get(index) ?? [];
    return sights
      .filter((sight) => sight.place === place && states.get(sight.version) !== sight.balance)
      .map(({ version, balance }) => `${index} ended as ${outcome} and saw ${balance} in version ${version}`);
  }

  /** How often a program must credit an account: once if it has read the account and stages it. */
  #changes(index: number, place: number): 0 | 1 {
    const { stages } = at(this.#programs, index);
    const isSeen = this.#sights.get(index)?.some((sight) => sight.place === place) === true;
    return isSeen && stages.some((stage) => stage.place === place) ? 1 : 0;
  }

  #program(): Program {
    const place = (): number => this.#upTo(accountCount - 1);
    const reads = Array.from({ length: 1 + this.#upTo(2) }, (): Read => {
      const kinds = ['one', 'one', 'one', 'one', 'several', 'several', 'beside', 'broken'] as const;
      return { kind: at(kinds, this.#upTo(7)), places: [place(), place()], hops: this.#upTo(hopsMax) };
    });
    const stages = new Map(
      Array.from({ length: this.#upTo(2) + 1 }, () => [place(), this.#random() < 0.5 ? 0 : -1] as const),
    );
    return {
      reads,
      refuses: this.#random() < 0.1,
      stages: [...stages].map(([each, from]) => ({ place: each, from })),
    };
  }

  /** A whole number from 0 to the maximum. */
  #upTo(maximum: number): number {
    return Math.floor(this.#random() * (maximum + 1));
  }
}

/**
 * A clock whose waits of more than 100 ms never end, so that no wait for a lock times out: only the holder of a lock releases it.
 * An execution that is still waiting at the end therefore waits for a lock that was lost.
 */
const withoutWaits: Clock = {
  ...systemClock,
  sleep: (durationMs) => (durationMs > 100 ? new Promise(() => undefined) : hops(1)),
};

function codeOf(error: unknown): string {
  if (error instanceof RefusedError) return 'refused';
  const { code } = FrameworkError.find(error) ?? { code: String(error) };
  return code === 'entity-not-found' ? 'refused' : code;
}
