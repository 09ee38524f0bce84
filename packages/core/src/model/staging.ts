/**
 * The versions that one attempt has staged, and what has become of them: `open` until its commit has ended, then `committed`, or
 * `dropped` if they were not committed, or may not have been.
 *
 * A version number does not identify a version: another action may have committed one with the same number. So a model knows the
 * attempt that has staged it, and its copies do. A model that was read from the database has none.
 */
export class Staging {
  #state: 'open' | 'committed' | 'dropped' = 'open';

  get isCommitted(): boolean {
    return this.#state === 'committed';
  }

  /** Ends it, unless it has ended; but what was dropped may turn out to be committed. */
  end(state: 'committed' | 'dropped'): void {
    if (this.#state !== 'committed') this.#state = state;
  }
}

/** Where the version of a model comes from. */
interface Origin {
  readonly staging: Staging;
  /** The model that was staged, of which this one is a copy. */
  readonly staged: object;
}

const origins = new WeakMap<object, Origin>();

/** The origin of a model whose version is not known to be committed. */
export function uncommittedOrigin(model: object): Origin | undefined {
  const origin = origins.get(model);
  return origin?.staging.isCommitted === false ? origin : undefined;
}

/** Records that an attempt has staged a model. */
export function setStaged(staged: object, staging: Staging): void {
  origins.set(staged, { staging, staged });
}

/** Records that a model is of the same version as the one of which it is a copy. */
export function copyOrigin(from: object, to: object): void {
  const origin = origins.get(from);
  if (origin !== undefined) origins.set(to, origin);
}
