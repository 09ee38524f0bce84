/** A generator of numbers from 0 up to 1 that gives the same ones for the same seed (mulberry32): for tests to be repeated. */
export function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** What was chosen, by the names of the streams: a run that is given the same takes the same way. */
export type Script = ReadonlyMap<string, readonly number[]>;

/**
 * Decides by chance what a simulation leaves open, and records it.
 *
 * The first alternative is always the simplest one, `false` before `true` and the smallest number first, because a failure is
 * simplified by choosing it more often.
 */
export class Choices {
  /** What was chosen so far. */
  readonly taken: number[] = [];
  readonly #random: () => number;
  readonly #script: readonly number[] | undefined;

  /** @param script what is to be chosen; the simplest alternative where it ends. Default: chance decides */
  constructor(random: () => number, script?: readonly number[]) {
    this.#random = random;
    this.#script = script;
  }

  /** A whole number from 0 up to a count, which it does not reach. */
  below(count: number): number {
    return this.#take(() => Math.floor(this.#random() * count), count - 1);
  }

  /** A whole number between two, which it may reach. */
  between(min: number, max: number): number {
    return min + this.below(max - min + 1);
  }

  /** One of several; the first one is the simplest. */
  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new RangeError('There is nothing to choose from: pass at least one item');
    return items[this.below(items.length)] as T;
  }

  /**
   * Whether something happens.
   *
   * @param share how often it does, from 0 to 1
   */
  chance(share: number): boolean {
    return this.#take(() => (this.#random() < share ? 1 : 0), 1) === 1;
  }

  /** Not everything at once is simpler than everything: some of the items, in their order. */
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

/** All decisions of one run: for each kind a stream of its own, so that leaving one out does not change the others. */
export class ChoiceStreams {
  readonly #seed: number;
  readonly #script: Script | undefined;
  readonly #streams = new Map<string, Choices>();

  /** @param script of an earlier run with the same seed, perhaps simplified */
  constructor(seed: number, script?: Script) {
    this.#seed = seed;
    this.#script = script;
  }

  /** The decisions of one kind. */
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

  /** Numbers from 0 up to 1 that nobody simplifies, such as jitter and the bits of ids. */
  randomOf(name: string): () => number {
    let hash = 0x811c9dc5 ^ this.#seed;
    for (let index = 0; index < name.length; index++)
      hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
    return seededRandom(hash);
  }

  /** What was chosen so far. */
  get taken(): Script {
    return new Map([...this.#streams].map(([name, { taken }]) => [name, taken]));
  }
}

/** Fills bytes by numbers from 0 to 1. */
export function randomBytesOf(random: () => number): (bytes: Uint8Array) => void {
  return (bytes) => {
    for (let index = 0; index < bytes.length; index += 4) {
      const word = Math.floor(random() * 2 ** 32);
      for (let byte = 0; byte < 4 && index + byte < bytes.length; byte++)
        bytes[index + byte] = word >>> (8 * byte);
    }
  };
}
