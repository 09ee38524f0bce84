import type { BenchServer } from '../database/bench-server.js';
import type { Figure } from './figure.js';

/** What a benchmark runs with. */
export interface BenchContext {
  /** Where its databases are. */
  readonly server: BenchServer;
  /** How often each contender is measured; the median counts. */
  readonly rounds: number;
  /** What the counts and durations of the full run are multiplied by, 1 or less. */
  readonly scale: number;
  /** Tells people what is going on. */
  readonly say: (line: string) => void;
}

/** Something that is measured, and verified while it is. */
export interface Benchmark {
  /** By which it is chosen on the command line. */
  readonly name: string;
  /** @throws when what was measured has not done its work right: such a figure is worth nothing */
  run(context: BenchContext): Promise<readonly Figure[]>;
}
