import type { Script } from './choices.js';

/** How often a run is tried at most. */
const triesMax = 200;

/**
 * Simplifies what was chosen in a run that fails, for as long as it still does: leaves out whole streams, then shorter and shorter
 * parts of them.
 *
 * The choices are simplified, and not what was made of them, as Hypothesis does (MacIver, Donaldson: Test-Case Reduction via
 * Test-Case Generation, ECOOP 2020).
 */
export class Shrinker {
  readonly #fails: (script: Script) => Promise<Script | undefined>;
  #best: Script;
  #tryCount = 0;

  /** @param fails runs what is chosen, and when that fails, gives what was really chosen */
  constructor(script: Script, fails: (script: Script) => Promise<Script | undefined>) {
    this.#best = script;
    this.#fails = fails;
  }

  /** The simplest choices that were found to fail. */
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

  /** Sets parts of a stream to the simplest alternatives: halves, quarters, and so on. */
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

/** How many decisions are not the simplest ones. */
export function weightOf(script: Script): number {
  let weight = 0;
  for (const values of script.values()) for (const value of values) if (value !== 0) weight++;
  return weight;
}
