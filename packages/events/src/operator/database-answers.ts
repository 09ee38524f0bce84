import type { DatabaseDelivery, ShardIdentifier } from '@framework/core';

/** A database that did not answer. */
export interface DatabaseFailure {
  /** The shards whose events it holds. */
  readonly shards: readonly ShardIdentifier[];
  /** What it, or the way to it, has thrown. */
  readonly error: unknown;
}

/** What the databases say that can be asked, and which ones cannot. */
export interface DatabaseAnswers<Item> {
  readonly items: readonly Item[];
  /** The databases whose items are missing. Empty when all have answered. */
  readonly failures: readonly DatabaseFailure[];
}

/** Asks all databases side by side; one that fails fails only its own part. */
export async function askDatabases<Item>(
  databases: readonly DatabaseDelivery[],
  question: (database: DatabaseDelivery) => Promise<readonly Item[]>,
): Promise<DatabaseAnswers<Item>> {
  const answers = await Promise.all(
    databases.map(async (database): Promise<DatabaseAnswers<Item>> => {
      try {
        return { items: await question(database), failures: [] };
      } catch (error) {
        return { items: [], failures: [{ shards: database.shards, error }] };
      }
    }),
  );
  return {
    items: answers.flatMap(({ items }) => items),
    failures: answers.flatMap(({ failures }) => failures),
  };
}

/**
 * Throws what databases have thrown, if any has: of one as it is, of several together.
 *
 * @throws unknown the error of the one that failed, or an AggregateError
 */
export function throwFailures(failures: readonly DatabaseFailure[]): void {
  const [first] = failures;
  if (first === undefined) return;
  if (failures.length === 1) throw first.error;
  throw new AggregateError(
    failures.map(({ error }) => error),
    `${failures.length} databases failed`,
  );
}
