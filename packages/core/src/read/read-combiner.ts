import { FrameworkException } from '../errors/framework-exception.js';
import type { AnyEntity } from '../model/entity.js';
import type { ModelSource } from './model-source.js';

interface Waiting<M> {
  readonly id: string;
  readonly resolve: (model: M | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Combines the reads of one source: those that come while one is under way become one statement.
 *
 * A lone read goes at once, by the source's fastest way for one.
 */
export class ReadCombiner<M extends AnyEntity> {
  readonly #source: ModelSource<M>;
  readonly #readsMax: number;
  readonly #waiting: Waiting<M>[] = [];
  #isBusy = false;

  constructor(source: ModelSource<M>, readsMax: number) {
    this.#source = source;
    this.#readsMax = readsMax;
  }

  read(id: string): Promise<M | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id, resolve, reject });
      if (!this.#isBusy) void this.#readAll();
    });
  }

  async #readAll(): Promise<void> {
    this.#isBusy = true;
    // Reads that begin at this very moment go together.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const reads = this.#waiting.splice(0, this.#readsMax);
      const [only] = reads;
      if (only !== undefined && reads.length === 1) await this.#readOne(only);
      else await this.#readSeveral(reads);
    }
    this.#isBusy = false;
  }

  async #readOne({ id, resolve, reject }: Waiting<M>): Promise<void> {
    await this.#source.readOne(id).then(resolve, reject);
  }

  async #readSeveral(reads: readonly Waiting<M>[]): Promise<void> {
    try {
      const models = await this.#source.readSeveral(reads.map(({ id }) => id));
      for (const { id, resolve } of reads) resolve(models.get(id));
    } catch (error) {
      // One that cannot be read, such as an id that is none, must not fail the others.
      if (FrameworkException.find(error)?.retryable === true) for (const { reject } of reads) reject(error);
      else await Promise.all(reads.map((read) => this.#readOne(read)));
    }
  }
}
