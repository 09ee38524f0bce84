import { type Clock, outsideRequests } from '../clock.js';
import { FrameworkError } from '../errors/framework-error.js';
import type { AnyEntity } from '../model/model.js';
import type { ModelSource } from '../storage/repository.js';
import type { ShardUnavailableError } from '../storage/storage-errors.js';
import { type AttemptReads, currentAttempt } from '../storage/transaction-manager.js';

/** The maximum number of models that one statement asks for. */
const readsMax = 128;
/** How long the next statement waits for the one that is running. */
const patienceMs = 100;

interface Waiting<M> {
  readonly id: string;
  readonly resolve: (model: M | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Combines the reads of one source: those that come while a statement is running become one statement.
 *
 * A single read is sent at once, in the source's fastest way for one model. If a statement is slow because the connection is
 * silent, it delays the reads that wait for it, but not those that come later.
 */
export class ReadCombiner<M extends AnyEntity> {
  readonly #source: ModelSource<M>;
  readonly #clock: Pick<Clock, 'elapsedMs'>;
  readonly #waiting: Waiting<M>[] = [];
  /** The statement that the waiting reads wait for, if there is one. */
  #underWay: { readonly since: number } | undefined;

  constructor(source: ModelSource<M>, clock: Pick<Clock, 'elapsedMs'>) {
    this.#source = source;
    this.#clock = clock;
  }

  read(id: string): Promise<M | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ id, resolve, reject });
      if (this.#underWay === undefined || this.#clock.elapsedMs() - this.#underWay.since > patienceMs)
        // A statement for several readers runs outside the async context of each of them.
        outsideRequests(() => void this.#readAll());
    });
  }

  async #readAll(): Promise<void> {
    let own = this.#begin();
    // Reads that begin at the same moment go together.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const reads = this.#waiting.splice(0, readsMax);
      const [only] = reads;
      if (only !== undefined && reads.length === 1) await this.#readOne(only);
      else await this.#readSeveral(reads);
      // This statement took so long that a later one has taken over the waiting reads.
      if (this.#underWay !== own) return;
      own = this.#begin();
    }
    this.#underWay = undefined;
  }

  #begin(): object {
    return (this.#underWay = { since: this.#clock.elapsedMs() });
  }

  async #readOne({ id, resolve, reject }: Waiting<M>): Promise<void> {
    try {
      resolve(await this.#source.readOne(id));
    } catch (error) {
      reject(error);
    }
  }

  async #readSeveral(reads: readonly Waiting<M>[]): Promise<void> {
    try {
      const models = await this.#source.readSeveral(reads.map(({ id }) => id));
      for (const read of reads) make(read, models.get(read.id));
    } catch (error) {
      // A model that cannot be read, because of an invalid id or a damaged row, must not fail the other reads.
      if (concernsAll(error)) for (const { reject } of reads) reject(error);
      else await Promise.all(reads.map((read) => this.#readOne(read)));
    }
  }
}

/** Whether an error says that the shard can serve no read now. */
function concernsAll(error: unknown): boolean {
  const known = FrameworkError.find(error);
  if (known?.retryable !== true) return false;
  return known.code !== 'shard-unavailable' || (known as ShardUnavailableError).kind !== 'damaged';
}

/** Decodes each row separately, so that one that cannot be decoded fails only the executions that read it. */
function make<M>({ resolve, reject }: Waiting<M>, toModel: (() => M) | undefined): void {
  try {
    resolve(toModel?.());
  } catch (error) {
    reject(error);
  }
}

/** Combines the reads by id of all executions of an executor, separately for each source. */
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

/**
 * Reads a model by its id; repositories call it for every such read. Within an action, it waits for the lock on the model, and
 * with group commit it may return a model that is staged but not committed yet.
 *
 * Outside of actions it is an ordinary read. Reads within `inTransaction` must not be passed here.
 *
 * @param id as the source writes it in its answers
 */
export function readById<M extends AnyEntity>(source: ModelSource<M>, id: string): Promise<M | undefined> {
  const reads = currentReads();
  return reads === undefined ? source.readOne(id) : reads.read(source, id);
}

/**
 * Reads several models like {@link readById}, but without waiting for locks. Each is a new object, unless {@link readById} has read
 * it for the same attempt.
 */
export async function readByIds<M extends AnyEntity>(
  source: ModelSource<M>,
  ids: readonly string[],
): Promise<ReadonlyMap<string, M>> {
  const reads = currentReads();
  if (reads !== undefined) return reads.readSeveral(source, ids);
  return instantiate(await source.readSeveral(ids));
}

/** Builds the models from everything that a source has read. */
export function instantiate<M>(stored: ReadonlyMap<string, () => M>): ReadonlyMap<string, M> {
  return new Map([...stored].map(([id, toModel]) => [id, toModel()]));
}

/** The reads of the caller's attempt, while its plan is open. */
function currentReads(): AttemptReads | undefined {
  const attempt = currentAttempt();
  return attempt === undefined || attempt.plan.sealed ? undefined : attempt.reads;
}
