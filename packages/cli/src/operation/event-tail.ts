import type { TrackedEvent } from '@framework/core/adapter';
import type { EventSearch, OfShards, Operator, OperatorFailure } from '@framework/operator';

import { readAll } from './answer.js';

/** How many events one page has: few, because most looks find few. */
const pageSize = 200;
/** How many events of the past the first look reads in each database. */
const pastMax = 1_000;
/** How many events one look reads at most in each database. */
const lookMax = 10_000;
/** How many events of each database are remembered as seen. */
const seenMax = 100_000;
/** Events that were created this long before the first look are not new, whenever they turn up, in milliseconds. */
const slackMs = 120_000;

/** What a look at the newest events has found. */
export interface PolledEvents {
  /** The oldest first. */
  readonly items: readonly OfShards<TrackedEvent>[];
  readonly failures: readonly OperatorFailure[];
  /** Whether there were more new events than one look reads; the oldest of them are left out. */
  readonly isCut: boolean;
}

/** What is followed: the databases, and how their events are read. */
type FollowedLogs = Pick<Operator, 'events' | 'shardsOfDatabases'>;

/**
 * Follows the newest events of the logs by looking again and again. Transactions do not commit in the order of the log, so each look
 * goes back until it has read a page of events that it has seen: in each database, whose clock may differ from those of others.
 */
export class EventTail {
  readonly #tails: readonly DatabaseTail[];

  constructor(logs: FollowedLogs, filter: EventSearch) {
    const all = logs.shardsOfDatabases.flatMap(([first]) => (first === undefined ? [] : [first]));
    const shards = filter.shard === undefined ? all : [filter.shard];
    this.#tails = shards.map((shard) => new DatabaseTail(logs, { ...filter, shard }));
  }

  /** The newest events that were there before. */
  async past(count: number): Promise<PolledEvents> {
    const look = merged(await Promise.all(this.#tails.map((tail) => tail.past())));
    const newestMs = Math.max(...this.#tails.map((tail) => tail.sinceMs ?? -Infinity));
    for (const tail of this.#tails) tail.assumeSince(newestMs);
    return { ...look, items: count === 0 ? [] : look.items.slice(-count) };
  }

  /** The events that have come since the last look. */
  async look(): Promise<PolledEvents> {
    return merged(await Promise.all(this.#tails.map((tail) => tail.look())));
  }
}

/** The events of several databases by their dates, and those of each one in its order. */
function merged(looks: readonly PolledEvents[]): PolledEvents {
  const timed = looks.flatMap(({ items }) => {
    let ms = -Infinity;
    return items.map((item) => {
      ms = Math.max(ms, item.event.createdDate.getTime());
      return { item, ms };
    });
  });
  return {
    items: timed.toSorted((one, other) => one.ms - other.ms).map(({ item }) => item),
    failures: looks.flatMap(({ failures }) => failures),
    isCut: looks.some(({ isCut }) => isCut),
  };
}

/** Follows one database. */
class DatabaseTail {
  /** What was created before is not new; `undefined` until the first event is seen. */
  sinceMs: number | undefined;
  readonly #logs: FollowedLogs;
  readonly #filter: EventSearch;
  readonly #seen = new Set<string>();
  #hasAnswered = false;

  constructor(logs: FollowedLogs, filter: EventSearch) {
    this.#logs = logs;
    this.#filter = filter;
  }

  async past(): Promise<PolledEvents> {
    const { items, failures } = await readAll(
      { limit: pastMax },
      (page) => this.#logs.events(this.#asked, page),
      pageSize,
    );
    this.#hasAnswered = failures.length === 0;
    for (const { event } of items) this.#seen.add(event.id);
    const newestMs = items[0]?.event.createdDate.getTime();
    if (newestMs !== undefined) this.sinceMs = newestMs - slackMs;
    return { items: items.filter((item) => this.#wants(item)).toReversed(), failures, isCut: false };
  }

  /** Takes the time of another database for one that did not say what it has. */
  assumeSince(sinceMs: number): void {
    if (!this.#hasAnswered && Number.isFinite(sinceMs)) this.sinceMs ??= sinceMs;
  }

  async look(): Promise<PolledEvents> {
    // No database has said yet what there was before.
    if (!this.#hasAnswered && this.sinceMs === undefined) return { ...(await this.past()), items: [] };
    const fresh: OfShards<TrackedEvent>[] = [];
    const failures: OperatorFailure[] = [];
    let after: string | undefined;
    let readCount = 0;
    do {
      const page = await this.#logs.events(this.#asked, { limit: pageSize, after });
      const unseen = page.items.filter(({ event }) => !this.#seen.has(event.id));
      fresh.push(...unseen.filter(({ event }) => event.createdDate.getTime() >= (this.sinceMs ?? 0)));
      for (const { event } of unseen) this.#seen.add(event.id);
      failures.push(...page.failures);
      readCount += page.items.length;
      after = unseen.length === 0 || page.next === after ? undefined : page.next;
    } while (after !== undefined && readCount < lookMax);
    this.#forget();
    const items = fresh.filter((item) => this.#wants(item)).toReversed();
    return { items, failures, isCut: after !== undefined };
  }

  get #asked(): EventSearch {
    const { shard, modelId } = this.#filter;
    return { ...(shard !== undefined && { shard }), ...(modelId !== undefined && { modelId }) };
  }

  /** Other filters than shard and model are applied here: the log has no index for them. */
  #wants({ event }: OfShards<TrackedEvent>): boolean {
    const { action, type, principal } = this.#filter;
    return (
      (action === undefined || event.actionName === action) &&
      (type === undefined || event.type === type) &&
      (principal === undefined || event.principal === principal)
    );
  }

  #forget(): void {
    for (const id of this.#seen) {
      if (this.#seen.size <= seenMax) return;
      this.#seen.delete(id);
    }
  }
}
