import { FrameworkError, type ModelClass, type Principal } from '@framework/core';
import { type AnyEntity, modelNameOf } from '@framework/core/adapter';

import type { MemoryCommit, MemoryTables } from '../memory/index.js';
import type { RepositoryOf } from '../specification/test-environment.js';
import type { ChoiceStreams, Choices } from './choices.js';
import type { Fleet } from './fleet.js';
import { type CallRecord, type History, type SimulationCall, callHeader, codeOf } from './history.js';
import type { Scheduler, StepOwner } from './scheduler.js';
import type { SimulatedProcess } from './simulated-process.js';
import type { CommitListener } from './simulation-options.js';

type Answer =
  | { readonly kind: 'ok'; readonly result: unknown }
  | { readonly kind: 'refused'; readonly error: unknown; readonly mayRepeat: boolean }
  | { readonly kind: 'unknown' };

const keyedShare = 0.65;
const twiceShare = 0.15;
const repeatWaitMaxMs = 800;
const noProcessWaitMs = 1_000;

/** The clients: they call actions, and repeat keyed calls until they know the outcome. */
export class SimulatedClients {
  readonly #scheduler: Scheduler;
  readonly #owner: StepOwner;
  readonly #streams: ChoiceStreams;
  readonly #history: History;
  readonly #fleet: Fleet;
  readonly #principal: Principal;
  #runningCount = 0;

  constructor(options: {
    readonly scheduler: Scheduler;
    readonly owner: StepOwner;
    readonly streams: ChoiceStreams;
    readonly history: History;
    readonly fleet: Fleet;
    readonly principal: Principal;
  }) {
    this.#scheduler = options.scheduler;
    this.#owner = options.owner;
    this.#streams = options.streams;
    this.#history = options.history;
    this.#fleet = options.fleet;
    this.#principal = options.principal;
  }

  /** How many calls have not ended. */
  get runningCount(): number {
    return this.#runningCount;
  }

  /**
   * Makes a call, and resolves when the client knows the outcome, or never will.
   *
   * @param usedKey the key of another call. Default: a new key, or none
   */
  async call(call: SimulationCall, choices: Choices, usedKey?: string): Promise<CallRecord> {
    const number = this.#history.calls.length;
    const isKeyed = usedKey !== undefined || (call.keyed ?? choices.chance(keyedShare));
    const record: CallRecord = {
      number,
      call,
      key: isKeyed ? (usedKey ?? `call-${number}`) : undefined,
      outcome: undefined,
      code: undefined,
      results: [],
      error: undefined,
    };
    this.#history.calls.push(record);
    this.#runningCount++;
    const isTwice = isKeyed && choices.chance(twiceShare);
    const answers = await Promise.all(
      Array.from({ length: isTwice ? 2 : 1 }, () => this.#untilKnown(record, choices)),
    );
    if (isTwice) this.#history.count('sent twice');
    for (const answer of answers) take(record, answer);
    this.#history.count(
      record.outcome === 'refused' ? `refused: ${record.code}` : (record.outcome ?? 'unknown'),
    );
    this.#runningCount--;
    return record;
  }

  /** The processes that accept calls. Waits until there are any, since all of them may be restarting. */
  async serving(): Promise<readonly SimulatedProcess[]> {
    for (;;) {
      const { serving } = this.#fleet;
      if (serving.length > 0) return serving;
      await this.#scheduler.sleep(this.#owner, noProcessWaitMs, 'a client finds nobody');
    }
  }

  async #untilKnown(record: CallRecord, choices: Choices): Promise<Answer> {
    let wasUnknown = false;
    for (;;) {
      const answer = await this.#send(record);
      if (answer.kind === 'ok' || record.key === undefined) return answer;
      if (answer.kind === 'unknown') wasUnknown = true;
      else if (!answer.mayRepeat || (!wasUnknown && choices.chance(0.5))) return answer;
      this.#history.count('repeated');
      await this.#scheduler.sleep(this.#owner, 1 + choices.below(repeatWaitMaxMs), 'a client repeats');
    }
  }

  async #send(record: CallRecord): Promise<Answer> {
    const { call, key, number } = record;
    const choices = this.#streams.of(`places of call ${number}`);
    const process = choices.pick(await this.serving());
    const headers = { ...call.configuration?.headers, [callHeader]: String(number) };
    const configuration = {
      ...call.configuration,
      headers,
      ...(key !== undefined && { idempotencyKey: key }),
    };
    const answer = new Promise<Answer>((resolve) => {
      const label = `call ${number} ${call.action.name}${key === undefined ? '' : ' with a key'}`;
      this.#scheduler.after(process.owner, 0, label, () => {
        const principal = call.principal ?? this.#principal;
        process
          .serve((executor) => executor.execute(principal, call.action, call.params as never, configuration))
          .then(
            (result) => resolve({ kind: 'ok', result }),
            (error: unknown) => resolve(refusal(error)),
          );
      });
    });
    return Promise.race([answer, process.killed.then((): Answer => ({ kind: 'unknown' }))]);
  }
}

function refusal(error: unknown): Answer {
  const known = FrameworkError.find(error);
  if (known?.code === 'commit-outcome-unknown' || known?.code === 'partial-commit')
    return { kind: 'unknown' };
  return { kind: 'refused', error, mayRepeat: known?.retryable === true };
}

/** Combines the answers to several copies of one request. */
function take(record: CallRecord, answer: Answer): void {
  if (answer.kind === 'ok') {
    record.outcome = 'ok';
    record.results.push(answer.result);
  } else if (record.outcome !== 'ok' && record.outcome !== 'unknown') {
    record.outcome = answer.kind;
    if (answer.kind === 'refused') {
      record.error = answer.error;
      record.code = codeOf(answer.error);
    }
  }
}

/** Passes the commits of all databases to a listener, in the order in which they were made, until the listener throws. */
export class CommitWatch {
  readonly #databases: readonly MemoryTables[];
  readonly #repository: RepositoryOf;
  readonly #lostCount: () => number;
  readonly #begin: () => CommitListener;
  readonly #onThrown: (thrown: unknown, commit: MemoryCommit) => void;
  /** How many commits of each database were passed on. */
  #toldCounts: number[] = [];
  #knownLostCount = 0;
  #listener: CommitListener | undefined;

  /**
   * @param options.lostCount how many commits failovers have lost so far
   * @param options.begin makes a listener that has not received any commit yet
   * @param options.onThrown receives the listener's error, and the commit that caused it
   */
  constructor(options: {
    readonly databases: readonly MemoryTables[];
    readonly repository: RepositoryOf;
    readonly lostCount: () => number;
    readonly begin: () => CommitListener;
    readonly onThrown: (thrown: unknown, commit: MemoryCommit) => void;
  }) {
    this.#databases = options.databases;
    this.#repository = options.repository;
    this.#lostCount = options.lostCount;
    this.#begin = options.begin;
    this.#onThrown = options.onThrown;
    this.#restart();
  }

  /** Passes on what was committed since the last call. */
  look(): void {
    if (this.#lostCount() !== this.#knownLostCount) this.#restart();
    if (this.#databases.every(({ commits }, index) => commits.length === this.#toldCounts[index])) return;
    const commits = this.#databases.flatMap((tables, index) => tables.commits.slice(this.#toldCounts[index]));
    this.#toldCounts = this.#databases.map((tables) => tables.commits.length);
    for (const commit of commits.sort((one, other) => one.position - other.position)) this.#tell(commit);
  }

  /** Starts again with the remaining commits, because some of those passed on were lost. */
  #restart(): void {
    this.#knownLostCount = this.#lostCount();
    this.#toldCounts = this.#databases.map(() => 0);
    this.#listener = this.#begin();
  }

  #tell(commit: MemoryCommit): void {
    const changed = <M extends AnyEntity>(model: ModelClass<M>): readonly M[] => {
      const repository = this.#repository(model);
      const own = commit.changes.filter(({ table }) => table === modelNameOf(model));
      return own.map(({ row }) => repository.modelOf(row));
    };
    try {
      this.#listener?.({ ...commit, changed });
    } catch (thrown) {
      // After a violation, everything that follows would be wrong as well.
      this.#listener = undefined;
      this.#onThrown(thrown, commit);
    }
  }
}
