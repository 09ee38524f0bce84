import type { MemoryMessage } from '../memory/index.js';
import type { Script } from './choices.js';
import type { StepLabel, StepOwner } from './scheduler.js';

/** The maximum number of times that a run is repeated. */
const triesMax = 200;

/**
 * Simplifies the choices of a failing run for as long as it still fails: first drops whole streams, then ever shorter
 * parts of them.
 *
 * It simplifies the choices and not the data made from them, as Hypothesis does (MacIver, Donaldson: Test-Case
 * Reduction via Test-Case Generation, ECOOP 2020).
 */
export class Shrinker {
  readonly #fails: (script: Script) => Promise<Script | undefined>;
  #best: Script;
  #tryCount = 0;

  /** @param fails runs a script and, if that fails, returns the choices that the run really made */
  constructor(script: Script, fails: (script: Script) => Promise<Script | undefined>) {
    this.#best = script;
    this.#fails = fails;
  }

  /** Returns the simplest failing choices that were found. */
  async simplest(): Promise<Script> {
    let isSimpler = true;
    while (isSimpler && this.#tryCount < triesMax) {
      isSimpler = false;
      const names = [...this.#best.keys()];
      for (const name of names) if (await this.#try(name, [])) isSimpler = true;
      for (const name of names) if (await this.#simplify(name)) isSimpler = true;
    }
    return this.#best;
  }

  /** Replaces parts of a stream with the simplest alternative: halves, quarters, and so on. */
  async #simplify(name: string): Promise<boolean> {
    let isSimpler = false;
    let size = Math.ceil(this.#valuesOf(name).length / 2);
    while (size >= 1 && this.#tryCount < triesMax) {
      for (let from = 0; from < this.#valuesOf(name).length; from += size) {
        const values = this.#valuesOf(name);
        const isPart = (index: number): boolean => index >= from && index < from + size;
        if (values.every((value, index) => !isPart(index) || value === 0)) continue;
        const simpler = values.map((value, index) => (isPart(index) ? 0 : value));
        if (await this.#try(name, simpler)) isSimpler = true;
      }
      size = size === 1 ? 0 : Math.ceil(size / 2);
    }
    return isSimpler;
  }

  #valuesOf(name: string): readonly number[] {
    return this.#best.get(name) ?? [];
  }

  async #try(name: string, values: readonly number[]): Promise<boolean> {
    if (this.#tryCount >= triesMax) return false;
    this.#tryCount++;
    const taken = await this.#fails(new Map([...this.#best, [name, values]]));
    if (taken === undefined || weightOf(taken) >= weightOf(this.#best)) return false;
    this.#best = taken;
    return true;
  }
}

/** How many decisions are not the simplest one. */
export function weightOf(script: Script): number {
  let weight = 0;
  for (const values of script.values()) for (const value of values) if (value !== 0) weight++;
  return weight;
}

/** What went wrong in a run, and how it came about. */
export interface FailedRun {
  readonly seed: number;
  /** The promises that were broken. */
  readonly violations: readonly string[];
  /** The steps of the run, simplified as far as possible. */
  readonly trace: readonly string[];
  /** How many decisions of the run are not the simplest one; the failure depends on these. */
  readonly decisionCount: number;
  readonly options: string;
}

const linesMax = 200;

/** A seed that fails, with everything needed to understand and repeat it. */
export class SimulationError extends Error {
  override readonly name = 'SimulationError';
  readonly seed: number;
  readonly violations: readonly string[];
  readonly trace: readonly string[];

  constructor({ seed, violations, trace, decisionCount, options }: FailedRun) {
    const left = trace.length - linesMax;
    super(
      [
        `Seed ${seed} breaks a promise:`,
        ...violations.map((violation) => `  ${violation}`),
        `Simplified to ${decisionCount} decisions, ${trace.length} steps (${options}):`,
        ...(left > 0 ? [`  … ${left} earlier steps`] : []),
        ...trace.slice(Math.max(0, left)).map((line) => `  ${line}`),
        `Run it again: SIMULATION_FROM=${seed} SIMULATION_SEEDS=1, or simulation.run(${seed})`,
      ].join('\n'),
    );
    this.seed = seed;
    this.violations = violations;
    this.trace = trace;
  }
}

const uuid = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** The steps of a run, one per line, with short names instead of ids. */
export class Trace {
  readonly #lines: string[] = [];
  readonly #names = new Map<string, string>();

  /** Gives an id a name. Ids without one are numbered in order of appearance. */
  name(id: string, name: string): void {
    this.#names.set(id, name);
  }

  add(nowMs: number, owner: StepOwner, label: StepLabel): void {
    const what = typeof label === 'string' ? label : describePassage(label);
    if (what === 'timer') return;
    this.#lines.push(`${nowMs.toFixed(1).padStart(9)} ms  ${owner.name.padEnd(7)} ${this.readable(what)}`);
  }

  /** Replaces the ids in a text with short names. */
  readable(text: string): string {
    return text.replace(uuid, (id) => {
      const name = this.#names.get(id) ?? `#${this.#names.size + 1}`;
      this.#names.set(id, name);
      return name;
    });
  }

  get lines(): readonly string[] {
    return this.#lines;
  }
}

function describePassage({ operation, shard, way, changes = [], error }: MemoryMessage): string {
  const writes = changes.map((each) => {
    const models = each.changes.map(
      ({ model, expectedVersion }) => `${model.id.value} ${expectedVersion}→${model.version}`,
    );
    return `${each.action.name} ${each.action.id} (${models.join(', ')})`;
  });
  const arrow = way === 'request' ? '→' : '←';
  const failed = error instanceof Error ? ` fails: ${error.message}` : '';
  return `${arrow} (${shard.group}, ${shard.member}) ${[operation, ...writes].join(' ')}${failed}`;
}
