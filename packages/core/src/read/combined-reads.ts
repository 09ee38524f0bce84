import type { Clock } from '../clock.js';
import type { AnyEntity } from '../model/entity.js';
import type { ModelSource } from './model-source.js';
import { ReadCombiner } from './read-combiner.js';

/** Combines the reads by id of all executions of an executor, for each source on its own. */
export class CombinedReads {
  readonly #combiners = new WeakMap<object, unknown>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Reads a model together with others of the source that are read at the same time. */
  read<M extends AnyEntity>(source: ModelSource<M>, id: string): Promise<M | undefined> {
    let combiner = this.#combiners.get(source) as ReadCombiner<M> | undefined;
    if (combiner === undefined) {
      combiner = new ReadCombiner(source, this.#clock);
      this.#combiners.set(source, combiner);
    }
    return combiner.read(id);
  }
}
