import type { Script } from './choices.js';
import { Shrinker, SimulationError, weightOf } from './shrink.js';
import type { SimulationGiven, SimulationOptions } from './simulation-options.js';
import { type RunReport, SimulationRun } from './simulation-run.js';

const seedsDefault = 100;

/** Which seeds to run. */
export interface Exploration {
  /** How many seeds. Default: the environment variable `SIMULATION_SEEDS`, otherwise 100. */
  readonly seeds?: number;
  /** The first seed. Default: the environment variable `SIMULATION_FROM`, otherwise 1. */
  readonly from?: number;
}

/** A summary of all runs. */
export interface ExplorationReport {
  readonly seedCount: number;
  readonly stepCount: number;
  /** How often each kind of situation occurred in all runs. A situation that never occurred was not tested. */
  readonly counts: ReadonlyMap<string, number>;
}

/**
 * Runs an application of actions and handlers against everything that can go wrong: several processes, databases in
 * memory, virtual time, and an order of all steps that a seed determines. The same seed gives the same run.
 *
 * Whatever happens, each call must have its effect once or not at all, each event must reach each handler in order, and
 * everything must come to rest. Use `check` for invariants of your own.
 *
 * ```ts
 * const simulation = new Simulation({
 *   models: [Wallet],
 *   actions: ({ clock, repository }) => [new WalletDepositMoneyAction(clock, repository(Wallet))],
 *   given: () => { const wallet = aWallet(); return { wallet, models: [wallet] }; },
 *   call: (choices, { wallet }) =>
 *     callOf(WalletDepositMoneyAction, { walletId: wallet.id, amount: new Big(choices.between(1, 9)) }),
 *   check: async ({ repository, given, events }) => { … },
 * });
 * await simulation.explore({ seeds: 300 });
 * ```
 */
export class Simulation<Given extends SimulationGiven> {
  readonly #options: SimulationOptions<Given>;

  constructor(options: SimulationOptions<Given>) {
    this.#options = options;
  }

  /**
   * Runs one seed, and records every step if requested.
   *
   * @throws any error of the functions in the simulation's options
   */
  run(seed: number, { trace = false }: { readonly trace?: boolean } = {}): Promise<RunReport> {
    return new SimulationRun(this.#options, seed, { isTraced: trace }).run();
  }

  /**
   * Runs many seeds.
   *
   * @throws SimulationError with the first seed that fails and its steps, simplified as far as possible
   * @throws Error when no call of any run has succeeded or committed anything, because then nothing was tested
   */
  async explore({
    seeds = fromEnvironment('SEEDS', seedsDefault),
    from = fromEnvironment('FROM', 1),
  }: Exploration = {}): Promise<ExplorationReport> {
    const counts = new Map<string, number>();
    let stepCount = 0;
    for (let seed = from; seed < from + seeds; seed++) {
      const report = await this.run(seed);
      if (report.violations.length > 0) throw await this.#failure(report);
      for (const [what, count] of report.counts) counts.set(what, (counts.get(what) ?? 0) + count);
      stepCount += report.stepCount;
    }
    assertTested(seeds, counts);
    return { seedCount: seeds, stepCount, counts };
  }

  async #failure({ seed, violations, script }: RunReport): Promise<SimulationError> {
    const kinds = new Set(violations.map(kindOf));
    const fails = async (candidate: Script): Promise<Script | undefined> => {
      const report = await this.#replay(seed, candidate, false);
      return report?.violations.some((each) => kinds.has(kindOf(each))) === true ? report.script : undefined;
    };
    const simplest = await new Shrinker(script, fails).simplest();
    const report = await this.#replay(seed, simplest, true);
    const isSame = report !== undefined && report.violations.length > 0;
    return new SimulationError({
      seed,
      violations: isSame
        ? report.violations
        : [
            ...violations,
            'the seed does not fail again: an action or handler depends on something other than the clock of its process',
          ],
      trace: report?.trace ?? [],
      decisionCount: weightOf(simplest),
      options: report?.settings ?? '',
    });
  }

  /** Repeats a run with these choices; `undefined` when the simulation's functions cannot handle them. */
  async #replay(seed: number, script: Script, isTraced: boolean): Promise<RunReport | undefined> {
    try {
      return await new SimulationRun(this.#options, seed, { script, isTraced }).run();
    } catch {
      return undefined;
    }
  }
}

function assertTested(seeds: number, counts: ReadonlyMap<string, number>): void {
  const [okCount, commitCount] = [counts.get('ok') ?? 0, counts.get('commits') ?? 0];
  if (seeds === 0 || (okCount > 0 && commitCount > 0)) return;
  const refusals = [...counts].filter(([what]) => what.startsWith('refused'));
  const outcomes = refusals.map(([what, count]) => `${count} × ${what}`).join(', ');
  const what = commitCount === 0 ? 'committed nothing' : 'answered no call successfully';
  throw new Error(
    `The simulation ${what} in ${seeds} runs, so it has tested nothing (${outcomes || 'no call was refused'}): ` +
      'check the calls, the given models and the actions',
  );
}

/** A violation without the parts that differ from run to run. */
function kindOf(violation: string): string {
  return violation.replace(/[0-9a-f]{8}-[0-9a-f-]{27}|\d+/g, '');
}

function fromEnvironment(name: string, otherwise: number): number {
  const value = process.env[`SIMULATION_${name}`];
  return value === undefined ? otherwise : Number(value);
}
