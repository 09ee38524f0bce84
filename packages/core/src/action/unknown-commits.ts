import { FrameworkException } from '../errors/framework-exception.js';
import type { CommitOutcomeUnknownException } from '../errors/storage-exceptions.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';

/** How many causes of an error are looked at. */
const depthMax = 8;

/**
 * The commits of one execution whose outcome was not known, each with the result of its attempt.
 *
 * A later attempt carries them, so that the database itself refuses a second effect; and if the first one did happen, the
 * caller gets the result that belongs to it.
 */
export class UnknownCommits<Result> {
  readonly #actionId: string;
  readonly #commits: { readonly unknown: CommitOutcomeUnknownException; readonly result: Result }[] = [];

  /** @param actionId the action of the execution, which is the same in all its attempts */
  constructor(actionId: string) {
    this.#actionId = actionId;
  }

  /**
   * Keeps the result of an attempt if its error says, or was caused by one that said, that its outcome is not known; not
   * where the outcome of another action is not known, on which it was built.
   */
  add(error: unknown, result: Result): void {
    const unknown = unknownCommitOf(error);
    if (unknown?.actionId === this.#actionId) this.#commits.push({ unknown, result });
  }

  /** Those that were sent to a shard; `undefined` when there are none. */
  on(shard: ShardIdentifier): readonly CommitOutcomeUnknownException[] | undefined {
    if (this.#commits.length === 0) return undefined;
    const own = this.#commits.map(({ unknown }) => unknown).filter((unknown) => unknown.shard === shard);
    return own.length === 0 ? undefined : own;
  }

  /**
   * Asks the log which of them happened.
   *
   * @returns the result of that attempt; `undefined` when none did
   * @throws CommitOutcomeUnknownException `commit-outcome-unknown` when that cannot be learnt
   */
  async happened(databases: DatabaseRegistry): Promise<{ readonly result: Result } | undefined> {
    for (const { unknown, result } of this.#commits) {
      if (await databases.transactionManager(unknown.shard).isCommitted(unknown)) return { result };
    }
    return undefined;
  }
}

/** The lost answer to a commit in a chain of causes; by code, because an adapter may bring its own copy of this package. */
export function unknownCommitOf(error: unknown): CommitOutcomeUnknownException | undefined {
  let link = error;
  for (let depth = 0; depth < depthMax && link instanceof Error; depth++) {
    if (isOutcomeUnknown(link)) return link;
    link = link.cause;
  }
  return undefined;
}

/** Whether an error says that the outcome of a commit is not known. */
export function isOutcomeUnknown(error: unknown): error is CommitOutcomeUnknownException {
  return FrameworkException.is(error) && error.code === 'commit-outcome-unknown';
}
