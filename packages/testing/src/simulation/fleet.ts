import type { ShardIdentifier } from '@framework/core';

import type { Choices } from './choices.js';
import { type ProcessDependencies, SimulatedProcess } from './simulated-process.js';

/** The processes of a run. */
export class Fleet {
  readonly #shards: readonly ShardIdentifier[];
  readonly #dependencies: ProcessDependencies;
  #processes: SimulatedProcess[] = [];
  readonly #versions = new Set<number>();
  #startedCount = 0;

  constructor(shards: readonly ShardIdentifier[], dependencies: ProcessDependencies) {
    this.#shards = shards;
    this.#dependencies = dependencies;
  }

  /** The processes that have not been killed. */
  get processes(): readonly SimulatedProcess[] {
    return this.#processes;
  }

  /** The processes that know all shards, are not paused and are not stopping. */
  get serving(): readonly SimulatedProcess[] {
    return this.#processes.filter(({ isServing, owner }) => isServing && owner.state === 'running');
  }

  /** The versions of the code that any process has run. */
  get versions(): ReadonlySet<number> {
    return this.#versions;
  }

  /**
   * Starts a process.
   *
   * @param setup.shards the shards in its configuration. Default: all
   * @param setup.version the version of its code. Default: 0, the last one
   */
  start({
    shards = this.#shards,
    version = 0,
  }: Partial<Pick<SimulatedProcess, 'shards' | 'version'>> = {}): SimulatedProcess {
    const process = new SimulatedProcess(`p${++this.#startedCount}`, { shards, version }, this.#dependencies);
    this.#processes.push(process);
    this.#versions.add(version);
    this.#dependencies.history.count(version === 0 ? 'start' : 'start of another version');
    return process;
  }

  kill(process: SimulatedProcess): void {
    process.kill();
    this.forget(process);
  }

  /** Removes a process that has ended by itself. */
  forget(process: SimulatedProcess): void {
    this.#processes = this.#processes.filter((each) => each !== process);
  }

  /** Chooses one of the processes, even a paused one; `undefined` when there is none. */
  any(choices: Choices): SimulatedProcess | undefined {
    return this.#processes.length === 0 ? undefined : choices.pick(this.#processes);
  }
}
