import { type AnyEntity, type ModelClass, modelNameOf } from '@framework/core';
import type { MemoryCommit, MemoryTables } from '../memory/index.js';
import type { RepositoryOf } from '../specification/world/world-setup.js';

/** A commit of a run, for an invariant that holds after each of them. */
export interface WatchedCommit extends Omit<MemoryCommit, 'changes'> {
  /** The models of a class that it added or changed, as it left them. */
  changed<M extends AnyEntity>(model: ModelClass<M>): readonly M[];
}

/** Is told each commit; throws when an invariant does not hold after it. */
export type CommitListener = (commit: WatchedCommit) => void;

/** Tells a listener all commits of a run, those of all databases in their order, until it throws. */
export class CommitWatch {
  readonly #databases: readonly MemoryTables[];
  readonly #repository: RepositoryOf;
  readonly #lostCount: () => number;
  readonly #begin: () => CommitListener;
  readonly #onThrown: (thrown: unknown, commit: MemoryCommit) => void;
  /** How many commits of each database were told. */
  #toldCounts: number[] = [];
  #knownLostCount = 0;
  #listener: CommitListener | undefined;

  /**
   * @param options.lostCount how many commits failovers have lost so far
   * @param options.begin makes a listener that was told nothing yet
   * @param options.onThrown gets what it throws, and the commit that it was told
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

  /** Tells what was committed since it looked last. */
  look(): void {
    if (this.#lostCount() !== this.#knownLostCount) this.#restart();
    if (this.#databases.every(({ commits }, index) => commits.length === this.#toldCounts[index])) return;
    const commits = this.#databases.flatMap((tables, index) => tables.commits.slice(this.#toldCounts[index]));
    this.#toldCounts = this.#databases.map((tables) => tables.commits.length);
    for (const commit of commits.sort((one, other) => one.position - other.position)) this.#tell(commit);
  }

  /** Begins again with what is there: some of what was told is lost. */
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
      // Whatever follows would be wrong as well.
      this.#listener = undefined;
      this.#onThrown(thrown, commit);
    }
  }
}
