/**
 * A random number generator (mulberry32) with results from 0 up to 1. The same seed gives the same numbers, so that
 * tests can be repeated.
 */
export function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The choices by stream name. A run with the same script takes the same course. */
export type Script = ReadonlyMap<string, readonly number[]>;

/**
 * Makes the random decisions of a simulation, and records them.
 *
 * The first alternative is always the simplest one (`false` before `true`, the smallest number first), because a
 * failure is simplified by choosing it more often.
 */
export class Choices {
  /** The choices so far. */
  readonly taken: number[] = [];
  readonly #random: () => number;
  readonly #script: readonly number[] | undefined;

  /** @param script the choices to make; after its end, the simplest alternatives. Default: random choices */
  constructor(random: () => number, script?: readonly number[]) {
    this.#random = random;
    this.#script = script;
  }

  /** A whole number from 0 up to, but not including, a count. */
  below(count: number): number {
    return this.#take(() => Math.floor(this.#random() * count), count - 1);
  }

  /** A whole number between two numbers, both included. */
  between(min: number, max: number): number {
    return min + this.below(max - min + 1);
  }

  /** One of several items; the first one is the simplest. */
  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new RangeError('The list of alternatives is empty: pass at least one item');
    return items[this.below(items.length)] as T;
  }

  /**
   * Whether something happens.
   *
   * @param share its probability, from 0 to 1
   */
  chance(share: number): boolean {
    return this.#take(() => (this.#random() < share ? 1 : 0), 1) === 1;
  }

  /** Some of the items, in their order. Fewer items are simpler than all of them. */
  some<T>(items: readonly T[], share: number): readonly T[] {
    return items.filter(() => this.chance(share));
  }

  #take(draw: () => number, max: number): number {
    const chosen =
      this.#script === undefined ? draw() : Math.min(this.#script[this.taken.length] ?? 0, Math.max(max, 0));
    this.taken.push(chosen);
    return chosen;
  }
}

/** All decisions of a run, in one stream per kind, so that leaving one out does not change the others. */
export class ChoiceStreams {
  readonly #seed: number;
  readonly #script: Script | undefined;
  readonly #streams = new Map<string, Choices>();

  /** @param script the choices of an earlier run with the same seed, perhaps simplified */
  constructor(seed: number, script?: Script) {
    this.#seed = seed;
    this.#script = script;
  }

  /** The stream of decisions of one kind. */
  of(name: string): Choices {
    let stream = this.#streams.get(name);
    if (stream === undefined) {
      stream = new Choices(
        this.randomOf(name),
        this.#script === undefined ? undefined : (this.#script.get(name) ?? []),
      );
      this.#streams.set(name, stream);
    }
    return stream;
  }

  /** Random numbers from 0 up to 1 that are never simplified, such as jitter and the bits of ids. */
  randomOf(name: string): () => number {
    let hash = 0x811c9dc5 ^ this.#seed;
    for (let index = 0; index < name.length; index++)
      hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
    return seededRandom(hash);
  }

  /** The choices so far. */
  get taken(): Script {
    return new Map([...this.#streams].map(([name, { taken }]) => [name, taken]));
  }
}

/** Returns a function that fills bytes at random, from a function that returns random numbers from 0 up to 1. */
export function randomBytesOf(random: () => number): (bytes: Uint8Array) => void {
  return (bytes) => {
    for (let index = 0; index < bytes.length; index += 4) {
      const word = Math.floor(random() * 2 ** 32);
      for (let byte = 0; byte < 4 && index + byte < bytes.length; byte++)
        bytes[index + byte] = word >>> (8 * byte);
    }
  };
}
