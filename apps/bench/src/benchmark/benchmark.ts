import type { BenchServer } from '../database/bench-server.js';
import type { Figure } from './figure.js';

/** The environment and size of a run. */
export interface BenchContext {
  /** Where its databases are. */
  readonly server: BenchServer;
  /** How often each contender is measured; the median counts. */
  readonly rounds: number;
  /** Multiplies the counts and durations of the full run; 1 or less. */
  readonly scale: number;
  /** Prints progress. */
  readonly say: (line: string) => void;
}

/** Something that is measured, and verified while it is measured. */
export interface Benchmark {
  /** The name by which the command line selects it. */
  readonly name: string;
  /** @throws when the measured work was not done correctly, which makes the figure worthless */
  run(context: BenchContext): Promise<readonly Figure[]>;
}
