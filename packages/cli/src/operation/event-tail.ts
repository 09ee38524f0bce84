import type { TrackedEvent } from '@framework/core/adapter';
import type { EventSearch, OfShards, Operator, OperatorFailure } from '@framework/operator';

import { readAll } from './answer.js';

/** How many events one page has: few, because most looks find few. */
const pageSize = 200;
/** How many events of the past the first look reads. */
const pastMax = 1_000;
/** How many events one look reads at most. */
const lookMax = 10_000;
/** How many events are remembered as seen. */
const seenMax = 100_000;
/** Events that were created this long before the first look are not new, whenever they turn up, in milliseconds. */
const slackMs = 120_000;

/** What a look at the newest events has found. */
export interface TailLook {
  /** The oldest first. */
  readonly items: readonly OfShards<TrackedEvent>[];
  readonly failures: readonly OperatorFailure[];
  /** Whether there were more new events than one look reads; the oldest of them are left out. */
  readonly isCut: boolean;
}

/**
 * Follows the newest events of the logs by looking again and again. Transactions do not commit in the order of the log, so each look
 * goes back until it has read a page of events that it has seen.
 */
export class EventTail {
  readonly #operator: Pick<Operator, 'events'>;
  readonly #filter: EventSearch;
  readonly #seen = new Set<string>();
  /** What was created before is not new; `undefined` until the first event is seen. */
  #sinceMs: number | undefined;

  constructor(operator: Pick<Operator, 'events'>, filter: EventSearch) {
    this.#operator = operator;
    this.#filter = filter;
  }

  /** The newest events that were there before. */
  async past(count: number): Promise<TailLook> {
    const { shard, modelId } = this.#filter;
    const asked = { ...(shard !== undefined && { shard }), ...(modelId !== undefined && { modelId }) };
    const { items, failures } = await readAll(
      { limit: pastMax },
      (page) => this.#operator.events(asked, page),
      pageSize,
    );
    for (const { event } of items) this.#seen.add(event.id);
    const newestMs = items[0]?.event.createdDate.getTime();
    if (newestMs !== undefined) this.#sinceMs = newestMs - slackMs;
    const wanted = items.filter((item) => this.#wants(item));
    return { items: wanted.slice(0, count).toReversed(), failures, isCut: false };
  }

  /** The events that have come since the last look. */
  async look(): Promise<TailLook> {
    const { shard, modelId } = this.#filter;
    const asked = { ...(shard !== undefined && { shard }), ...(modelId !== undefined && { modelId }) };
    const fresh: OfShards<TrackedEvent>[] = [];
    const failures: OperatorFailure[] = [];
    let after: string | undefined;
    let readCount = 0;
    do {
      const page = await this.#operator.events(asked, { limit: pageSize, after });
      const unseen = page.items.filter(({ event }) => !this.#seen.has(event.id));
      fresh.push(...unseen.filter(({ event }) => event.createdDate.getTime() >= (this.#sinceMs ?? 0)));
      for (const { event } of unseen) this.#seen.add(event.id);
      failures.push(...page.failures);
      readCount += page.items.length;
      after = unseen.length === 0 || page.next === after ? undefined : page.next;
    } while (after !== undefined && readCount < lookMax);
    this.#forget();
    const items = fresh.filter((item) => this.#wants(item)).toReversed();
    return { items, failures, isCut: after !== undefined };
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
