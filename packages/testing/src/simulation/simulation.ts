import type { Script } from './choices.js';
import { Shrinker, SimulationError, weightOf } from './shrink.js';
import type { SimulationGiven, SimulationOptions } from './simulation-options.js';
import { type RunReport, SimulationRun } from './simulation-run.js';

const seedsDefault = 100;

/** Which seeds are run. */
export interface Exploration {
  /** How many. Default: the environment variable `SIMULATION_SEEDS`, else 100. */
  readonly seeds?: number;
  /** The first one. Default: the environment variable `SIMULATION_FROM`, else 1. */
  readonly from?: number;
}

/** What was met in all runs. */
export interface ExplorationReport {
  readonly seedCount: number;
  readonly stepCount: number;
  /** How often something was met, over all runs: what was never met was not tested. */
  readonly counts: ReadonlyMap<string, number>;
}

/**
 * Runs an application of actions and handlers against everything that can go wrong: several processes, databases in memory, virtual
 * time, and an order of all steps that a seed chooses. The same seed leads to the same run.
 *
 * Whatever happens, each call has its effect once or not at all, each event reaches each handler in order, and everything comes to
 * rest. Own invariants are checked by `check`.
 *
 * ```ts
 * const simulation = new Simulation({
 *   models: [Wallet],
 *   actions: ({ clock, repository }) => [new WalletDepositMoneyAction(clock, repository(Wallet))],
 *   given: () => { const wallet = aWallet(); return { wallet, models: [wallet] }; },
 *   call: (choices, { wallet }) => callOf(WalletDepositMoneyAction, { walletId: wallet.id, amount: choices.between(1, 9) }),
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
   * Runs one seed, and tells every step of it where that is asked for.
   *
   * @throws whatever the description of the simulation throws
   */
  run(seed: number, { trace = false }: { readonly trace?: boolean } = {}): Promise<RunReport> {
    return new SimulationRun(this.#options, seed, { isTraced: trace }).run();
  }

  /**
   * Runs many seeds.
   *
   * @throws SimulationError with the first seed that fails, and its steps, simplified as far as that is possible
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
            'the seed does not fail again: something in the actions or handlers is not by the clock of the process',
          ],
      trace: report?.trace ?? [],
      decisionCount: weightOf(simplest),
      options: report?.settings ?? '',
    });
  }

  /** Runs what was chosen; `undefined` when the description of the simulation cannot make anything of it. */
  async #replay(seed: number, script: Script, isTraced: boolean): Promise<RunReport | undefined> {
    try {
      return await new SimulationRun(this.#options, seed, { script, isTraced }).run();
    } catch {
      return undefined;
    }
  }
}

/** A violation without what differs from run to run. */
function kindOf(violation: string): string {
  return violation.replace(/[0-9a-f]{8}-[0-9a-f-]{27}|\d+/g, '');
}

function fromEnvironment(name: string, otherwise: number): number {
  const value = process.env[`SIMULATION_${name}`];
  return value === undefined ? otherwise : Number(value);
}
