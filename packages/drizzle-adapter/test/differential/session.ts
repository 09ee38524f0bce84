import { Handling } from './handling.js';
import { Known } from './known.js';
import { Blocking } from './blocking.js';
import type { StorePair } from './store-pair.js';
import { Writing } from './writing.js';

interface Parts {
  readonly writing: Writing;
  readonly handling: Handling;
  readonly blocking: Blocking;
}

interface Weighted {
  /** How often the operation is chosen, relative to the others. */
  readonly weight: number;
  readonly run: (parts: Parts) => Promise<void>;
}

const weighted = {
  persist: { weight: 4, run: ({ writing }) => writing.persist() },
  persistAll: { weight: 3, run: ({ writing }) => writing.persistAll() },
  history: { weight: 1, run: ({ writing }) => writing.history() },
  backUp: { weight: 1, run: ({ writing }) => writing.backUp() },
  restore: { weight: 1, run: ({ writing }) => writing.restore() },
  findKey: { weight: 1, run: ({ writing }) => writing.findKey() },
  deleteExpired: { weight: 1, run: ({ writing }) => writing.deleteExpired() },
  findHandlerKeys: { weight: 1, run: ({ writing }) => writing.findHandlerKeys() },
  deleteKeys: { weight: 1, run: ({ writing }) => writing.deleteKeys() },
  register: { weight: 2, run: ({ handling }) => handling.register() },
  findHandler: { weight: 1, run: ({ handling }) => handling.findHandler() },
  renew: { weight: 5, run: ({ handling }) => handling.renew() },
  release: { weight: 1, run: ({ handling }) => handling.release() },
  list: { weight: 1, run: ({ handling }) => handling.list() },
  load: { weight: 2, run: ({ handling }) => handling.load() },
  known: { weight: 1, run: ({ handling }) => handling.known() },
  read: { weight: 2, run: ({ handling }) => handling.read() },
  save: { weight: 2, run: ({ handling }) => handling.save() },
  setPaused: { weight: 1, run: ({ handling }) => handling.setPaused() },
  lag: { weight: 1, run: ({ handling }) => handling.lag() },
  retire: { weight: 1, run: ({ handling }) => handling.retire() },
  loadEvents: { weight: 1, run: ({ handling }) => handling.loadEvents() },
  fail: { weight: 4, run: ({ blocking }) => blocking.fail() },
  failHead: { weight: 3, run: ({ blocking }) => blocking.failHead() },
  hold: { weight: 2, run: ({ blocking }) => blocking.hold() },
  models: { weight: 1, run: ({ blocking }) => blocking.models() },
  dueHeads: { weight: 6, run: ({ blocking }) => blocking.dueHeads() },
  nextDueMs: { weight: 1, run: ({ blocking }) => blocking.nextDueMs() },
  begin: { weight: 4, run: ({ blocking }) => blocking.begin() },
  giveBack: { weight: 2, run: ({ blocking }) => blocking.giveBack() },
  readModels: { weight: 1, run: ({ blocking }) => blocking.read() },
  move: { weight: 3, run: ({ blocking }) => blocking.move() },
  headOf: { weight: 1, run: ({ blocking }) => blocking.headOf() },
  mayComeAgain: { weight: 1, run: ({ blocking }) => blocking.mayComeAgain() },
  find: { weight: 1, run: ({ blocking }) => blocking.find() },
  replay: { weight: 1, run: ({ blocking }) => blocking.replay() },
  skip: { weight: 1, run: ({ blocking }) => blocking.skip() },
} satisfies Record<string, Weighted>;

export type Operation = keyof typeof weighted;

/** The possible operations, each chosen in proportion to its weight. */
export const operations: readonly Operation[] = Object.entries(weighted).flatMap(([name, { weight }]) =>
  Array<Operation>(weight).fill(name as Operation),
);

/** A sequence of operations on two stores. */
export class Session {
  /** Which operations had which kind of answer. */
  readonly met = new Set<string>();
  readonly #known: Known;
  readonly #parts: Parts;

  constructor(stores: StorePair) {
    const known = (this.#known = new Known(stores));
    this.#parts = {
      writing: new Writing(known),
      handling: new Handling(known),
      blocking: new Blocking(known),
    };
  }

  /** Creates the state from which operations start. */
  async begin(): Promise<void> {
    await this.#parts.handling.begin();
    await this.#known.stores.backUp();
    this.#known.stores.met.clear();
  }

  /** Performs one operation a little later, with details chosen by the seed. */
  async do(operation: Operation, seed: number): Promise<void> {
    const { stores } = this.#known;
    this.#known.choose(seed);
    const laterMs = this.#known.chance(0.05) ? 15_000 : 300;
    await stores.pass(1 + this.#known.below(laterMs));
    await weighted[operation].run(this.#parts);
    for (const answer of stores.met) this.met.add(`${operation}: ${answer}`);
    stores.met.clear();
  }

  /** Compares all contents of the stores. */
  async compare(): Promise<void> {
    const { writing, handling, blocking } = this.#parts;
    await writing.compare();
    await blocking.find();
    await handling.list();
    await handling.lag();
  }
}
