import type { ShardIdentifier } from '@framework/core';
import type { Choices } from './choices.js';
import { type ProcessSurroundings, SimulatedProcess } from './simulated-process.js';

/** The processes of a run. */
export class Fleet {
  readonly #shards: readonly ShardIdentifier[];
  readonly #around: ProcessSurroundings;
  #processes: SimulatedProcess[] = [];
  #startedCount = 0;

  constructor(shards: readonly ShardIdentifier[], around: ProcessSurroundings) {
    this.#shards = shards;
    this.#around = around;
  }

  /** Those that have not been killed. */
  get processes(): readonly SimulatedProcess[] {
    return this.#processes;
  }

  /** Those that have all shards and are not paused. */
  get serving(): readonly SimulatedProcess[] {
    return this.#processes.filter(({ isServing, owner }) => isServing && owner.state === 'running');
  }

  /** @param shards of its configuration. Default: all */
  start(shards: readonly ShardIdentifier[] = this.#shards): SimulatedProcess {
    const process = new SimulatedProcess(`p${++this.#startedCount}`, shards, this.#around);
    this.#processes.push(process);
    return process;
  }

  kill(process: SimulatedProcess): void {
    process.kill();
    this.forget(process);
  }

  /** Leaves out a process that has ended by itself. */
  forget(process: SimulatedProcess): void {
    this.#processes = this.#processes.filter((each) => each !== process);
  }

  /** One that runs, or is paused; `undefined` when there is none. */
  any(choices: Choices): SimulatedProcess | undefined {
    return this.#processes.length === 0 ? undefined : choices.pick(this.#processes);
  }
}
