/** What a run has shown that must never be, and how it came to it. */
export interface FailedRun {
  readonly seed: number;
  /** What was violated. */
  readonly violations: readonly string[];
  /** The steps of the run, simplified as far as that was possible. */
  readonly trace: readonly string[];
  /** How many decisions of the run are not the simplest ones: those on which the failure depends. */
  readonly decisionCount: number;
  readonly options: string;
}

const linesMax = 200;

/** A seed that fails, with everything that is needed to understand it and to run it again. */
export class SimulationFailure extends Error {
  override readonly name = 'SimulationFailure';
  readonly seed: number;
  readonly violations: readonly string[];
  readonly trace: readonly string[];

  constructor({ seed, violations, trace, decisionCount, options }: FailedRun) {
    const left = trace.length - linesMax;
    super(
      [
        `Seed ${seed} violates what must always hold:`,
        ...violations.map((violation) => `  ${violation}`),
        `Simplified to ${decisionCount} decisions, ${trace.length} steps (${options}):`,
        ...(left > 0 ? [`  … ${left} steps before`] : []),
        ...trace.slice(Math.max(0, left)).map((line) => `  ${line}`),
        `Run it again: SIMULATION_FROM=${seed} SIMULATION_SEEDS=1, or simulation.run(${seed})`,
      ].join('\n'),
    );
    this.seed = seed;
    this.violations = violations;
    this.trace = trace;
  }
}
