import {
  type DatabaseDelivery,
  type LogFilter,
  type LogSearch,
  OperatorRequestError,
  type TrackedEvent,
  pageSize,
} from '@framework/core/adapter';

import {
  type OfShards,
  type OperatorFailure,
  type PartialPage,
  failureOf,
  operatorStoreOf,
  shardTexts,
} from './answers.js';
import { isOfRequest, parsePlaces, placeKey } from './pages.js';

/** What the search of one database has found. */
interface Searched {
  readonly key: string;
  readonly database: DatabaseDelivery;
  /** `undefined` when it failed. */
  readonly found: LogSearch | undefined;
  readonly place?: string | undefined;
  readonly failure?: OperatorFailure;
}

/**
 * Searches the logs of databases, the newest events first.
 *
 * @throws OperatorRequestError `operator-request` when the search has no bound
 * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
 */
export async function searchLogs(
  databases: readonly DatabaseDelivery[],
  filter: LogFilter,
  { limit, after }: { readonly limit: number; readonly after?: string | undefined },
): Promise<PartialPage<OfShards<TrackedEvent>>> {
  assertBounded(filter);
  const size = pageSize(limit);
  const places = parsePlaces(after);
  const searched = await Promise.all(
    databases.map(async (database): Promise<Searched> => {
      const key = placeKey(database);
      const place = places[key];
      if (place === null) return { key, database, found: ended };
      try {
        const found = await operatorStoreOf(database).searchEvents(filter, { limit: size, after: place });
        return { key, database, found };
      } catch (error) {
        if (isOfRequest(error)) throw error;
        return { key, database, found: undefined, place, failure: failureOf(database.shards, error) };
      }
    }),
  );
  const read = searched.flatMap(({ key, database, found }) =>
    found === undefined ? [] : [{ key, found, shards: shardTexts(database.shards) }],
  );
  const taken = merged(
    read.map(({ found }) => found),
    size,
  );
  const next: Record<string, string | null> = {};
  for (const [index, { key, found }] of read.entries()) {
    const count = taken.filter((each) => each.index === index).length;
    const place =
      count === found.items.length ? (found.next ?? null) : (found.items[count - 1]?.place ?? places[key]);
    if (place !== undefined) next[key] = place;
  }
  const isOver = read.every(({ key }) => next[key] === null);
  const failures: OperatorFailure[] = [];
  for (const { key, place, failure } of searched) {
    if (failure === undefined) continue;
    failures.push(failure);
    if (place !== undefined) next[key] = place;
  }
  return {
    items: taken.map(({ index, item: { event, deliveries } }) => ({
      event,
      deliveries,
      shards: read[index]?.shards ?? [],
    })),
    next: isOver ? undefined : JSON.stringify(next),
    failures,
  };
}

/**
 * Merges what was found in several logs, the newest first, and each log in its own order, which differs a little from that of dates. Ends
 * where a log that was not read further may have a newer event.
 */
function merged(
  logs: readonly LogSearch[],
  size: number,
): readonly { readonly index: number; readonly item: LogSearch['items'][number] }[] {
  const reached = logs.map(({ next, reachedDate }) => (next === undefined ? -Infinity : timeOf(reachedDate)));
  const horizon = Math.max(...reached, -Infinity);
  const counts = logs.map(() => 0);
  const taken: { readonly index: number; readonly item: LogSearch['items'][number] }[] = [];
  while (taken.length < size) {
    const heads = logs.flatMap(({ items }, index) => {
      const item = items[counts[index] ?? 0];
      if (item === undefined) return [];
      return [{ index, item, time: Math.max(timeOf(item.event.createdDate), reached[index] ?? -Infinity) }];
    });
    const newest = heads.sort((one, other) => other.time - one.time)[0];
    if (newest === undefined || newest.time < horizon) break;
    counts[newest.index] = (counts[newest.index] ?? 0) + 1;
    taken.push(newest);
  }
  return taken;
}

/** Earlier dates are those of no event, and databases refuse the earliest. */
const dateMin = new Date('0000-01-01T00:00:00Z');

const ended: LogSearch = { items: [], next: undefined, reachedDate: undefined };

function timeOf(date: Date | undefined): number {
  return date?.getTime() ?? -Infinity;
}

/**
 * A search by something that no index has would read the whole log; and databases cannot store every date.
 *
 * @throws OperatorRequestError `operator-request`
 */
export function assertBounded({ modelId, actionId, since, until, action, type, principal }: LogFilter): void {
  for (const [name, date] of Object.entries({ since, until }))
    if (date !== undefined && !(date >= dateMin))
      throw new OperatorRequestError(`${name} is not a date after the year 0: pass a valid one`);
  if (modelId !== undefined || actionId !== undefined || since !== undefined) return;
  const given = Object.entries({ action, type, principal }).flatMap(([name, value]) =>
    value === undefined ? [] : [name],
  );
  if (given.length === 0) return;
  throw new OperatorRequestError(
    `A search by ${given.join(' and ')} alone would read the whole log: add since, a model or an action's id`,
  );
}
