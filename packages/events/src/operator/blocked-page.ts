import { InvalidCursorError, type Page, type ShardIdentifier } from '@framework/core';
import {
  type DatabaseDelivery,
  type DeliveryStore,
  type BlockedFilter,
  type BlockedRow,
  UnknownHandlerError,
  pageSize,
} from '@framework/core/adapter';

const limitDefault = 100;

/** One page of blocked events; those of databases that did not answer this time are missing. */
export interface BlockedPage extends Page<BlockedRow>, DatabaseAnswers<BlockedRow> {}

/**
 * One page of the blocked events of all databases, one database after the other; a database that fails is skipped.
 *
 * @throws UnknownHandlerError `unknown-handler` when the filter of a first page names a handler that no database knows
 * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of an earlier page
 * @throws InvariantViolationError `invariant-violation` when the limit is not a whole number, or is negative
 */
export async function findBlockedPage(
  databases: readonly DatabaseDelivery[],
  filter: BlockedFilter,
  { limit = limitDefault, after }: { readonly limit?: number; readonly after?: string | undefined },
): Promise<BlockedPage> {
  const size = pageSize(limit);
  const { index: from, within } = place(after, databases.length);
  const items: BlockedRow[] = [];
  const failures: DatabaseFailure[] = [];
  let isKnown = after !== undefined;
  for (const [offset, { store, shards }] of databases.slice(from).entries()) {
    const index = from + offset;
    if (items.length === size) return { items, next: `${index}:`, failures };
    const rest = { limit: size - items.length, after: offset === 0 ? within : undefined };
    try {
      const own = await filterIn(store, filter);
      if (own === undefined) continue;
      const { items: found, next } = await store.deadLetters.find(own, rest);
      isKnown = true;
      items.push(...found);
      if (next !== undefined) return { items, next: `${index}:${next}`, failures };
    } catch (error) {
      if (error instanceof InvalidCursorError) throw error;
      failures.push({ shards, error });
    }
  }
  // A database that failed may know the handler.
  const isUnknown = !isKnown && failures.length === 0;
  if (filter.handler !== undefined && isUnknown) throw new UnknownHandlerError(filter.handler);
  return { items, next: undefined, failures };
}

/** The filter with the handler's permanent id in place of the given name; `undefined` if the handler is unknown. */
export async function filterIn(
  { cursors }: DeliveryStore,
  filter: BlockedFilter,
): Promise<BlockedFilter | undefined> {
  if (filter.handler === undefined) return filter;
  const handler = await cursors.find(filter.handler);
  return handler === undefined ? undefined : { ...filter, handler };
}

function place(
  after: string | undefined,
  databaseCount: number,
): { readonly index: number; readonly within: string | undefined } {
  if (after === undefined) return { index: 0, within: undefined };
  const [, index, within] = /^(\d+):(.*)$/s.exec(after) ?? [];
  if (index === undefined || Number(index) >= databaseCount) throw new InvalidCursorError(after);
  return { index: Number(index), within: within === '' ? undefined : within };
}

/** A database that did not answer. */
export interface DatabaseFailure {
  /** The shards whose events it holds. */
  readonly shards: readonly ShardIdentifier[];
  /** The error of the database, or of the connection to it. */
  readonly error: unknown;
}

/** The answers of the databases, and which ones did not answer. */
export interface DatabaseAnswers<Item> {
  readonly items: readonly Item[];
  /** The databases whose items are missing. Empty when all have answered. */
  readonly failures: readonly DatabaseFailure[];
}

/** Queries all databases in parallel; a failed one leaves out only its own items. */
export async function queryAll<Item>(
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
 * Throws the errors of databases, if there are any: a single one unchanged, several together.
 *
 * @throws the error of the database that failed, or an AggregateError if several failed
 */
export function throwFailures(failures: readonly DatabaseFailure[]): void {
  const [first] = failures;
  if (first === undefined) return;
  if (failures.length === 1) throw first.error;
  throw new AggregateError(
    failures.map(({ error }) => error),
    `${failures.length} databases failed: see the errors of this AggregateError`,
  );
}
