import type { BenchServer } from '../database/bench-server.js';

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

/** One line of the table: what was measured, and its bounds. */
export interface Figure {
  readonly title: string;
  readonly value: number;
  /** The unit of the value, such as `×`, `ms`, `s`, `%`. */
  readonly unit: string;
  /** The lower bound. */
  readonly atLeast?: number;
  /** The upper bound. */
  readonly atMost?: number;
  /** What the value was computed from, such as the median of each contender. */
  readonly measured: Readonly<Record<string, number>>;
}

/** Whether a figure is within its bounds. */
export function isReached({ value, atLeast = -Infinity, atMost = Infinity }: Figure): boolean {
  return value >= atLeast && value <= atMost;
}
