import { FrameworkError, type ShardIdentifier } from '@framework/core';
import { type DatabaseDelivery, OperatorRequestError, type OperatorStore } from '@framework/core/adapter';

/** A database whose part of an answer is missing. Only the code of its error is shown: messages of drivers may name hosts and users. */
export interface OperatorFailure {
  /** The shards of the database, as `group/member`. */
  readonly shards: readonly string[];
  /** The code of the framework's error; `internal` for any other. */
  readonly code: string;
  /** What is wrong and what to do, where the message contains nothing of a driver. */
  readonly detail?: string;
}

/** An answer, from which the parts of the databases in `failures` are missing. */
export interface PartialAnswer<Item> {
  readonly items: readonly Item[];
  readonly failures: readonly OperatorFailure[];
}

/** An item with the shards of its database, as `group/member`. */
export type OfShards<Item> = Item & { readonly shards: readonly string[] };

/** One page of an answer. */
export interface PartialPage<Item> extends PartialAnswer<Item> {
  /** Pass it as `after` to continue; `undefined` on the last page. */
  readonly next: string | undefined;
}

/** The errors whose messages are about the request alone. */
const shownCodes: ReadonlySet<string> = new Set(['handler-in-use', 'operator-request']);

/** An error with a text for operators, which contains no addresses; the code is that of its cause. */
export class ExplainedError extends Error {
  override readonly name = 'ExplainedError';
}

/** What is shown of a database that failed. */
export function failureOf(shards: readonly ShardIdentifier[], error: unknown): OperatorFailure {
  const known = FrameworkError.find(error);
  const code = known?.code ?? 'internal';
  const detail = error instanceof ExplainedError || shownCodes.has(code) ? detailOf(error) : undefined;
  return { shards: shardTexts(shards), code, ...(detail !== undefined && { detail }) };
}

function detailOf(error: unknown): string | undefined {
  return error instanceof ExplainedError ? error.message : FrameworkError.find(error)?.message;
}

/** Shards as operators write them, such as `1/0`. */
export function shardTexts(shards: readonly ShardIdentifier[]): readonly string[] {
  return shards.map(({ group, member }) => `${group}/${member}`);
}

/**
 * Asks all databases in parallel; each one that fails costs only its part of the answer.
 *
 * @throws OperatorRequestError `operator-request` when the adapter keeps nothing for operators
 */
export async function ask<Item>(
  databases: readonly DatabaseDelivery[],
  question: (database: DatabaseDelivery) => Promise<readonly Item[]>,
): Promise<PartialAnswer<Item>> {
  const answers = await Promise.all(
    databases.map(async (database): Promise<PartialAnswer<Item>> => {
      try {
        return { items: await question(database), failures: [] };
      } catch (error) {
        if (error instanceof OperatorRequestError) throw error;
        return { items: [], failures: [failureOf(database.shards, error)] };
      }
    }),
  );
  return {
    items: answers.flatMap(({ items }) => items),
    failures: answers.flatMap(({ failures }) => failures),
  };
}

/** @throws OperatorRequestError `operator-request` when the adapter of the database has nothing for operators */
export function operatorStoreOf({ store }: DatabaseDelivery): OperatorStore {
  if (store.operator !== undefined) return store.operator;
  throw new OperatorRequestError(
    'The adapter of these databases keeps nothing for operators: use one whose delivery store has an operator store, such as @framework/drizzle-adapter',
  );
}
