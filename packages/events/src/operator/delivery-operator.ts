import type { DatabaseRegistry, ShardIdentifier } from '@framework/core';
import {
  type DatabaseDelivery,
  type DeadLetters,
  type DeadLettersStep,
  type DeliveryStore,
  type HandlerLag,
  type LeasedSlot,
  type BlockedFilter,
  type StepPlace,
  UnknownHandlerError,
  outsideRequests,
} from '@framework/core/adapter';

import {
  type DatabaseAnswers,
  type BlockedPage,
  queryAll,
  filterIn,
  findBlockedPage,
  throwFailures,
} from './blocked-page.js';
import { type EventExplanation, explainEvent } from './explain-event.js';

/** The maximum number of dead letters that one statement changes. */
const stepMax = 1_000;
/** No database has more blocked models. */
const countMax = 2 ** 31 - 1;

/** How far a handler is behind in one database. */
export interface ShardLag extends HandlerLag {
  /** The shards whose events the database holds. */
  readonly shards: readonly ShardIdentifier[];
}

/** Which processes deliver the events of one database. */
export interface ShardLeases {
  readonly shards: readonly ShardIdentifier[];
  readonly slots: readonly LeasedSlot[];
}

/**
 * What operators can query and change in delivery, across all databases; needs no running delivery.
 *
 * A database that is down affects only its own part. A query also returns `failures`, which lists the databases that did not
 * answer. A change is made in all other databases before the call rejects; it is safe to repeat the call.
 *
 * @example examples/dead-letter.ts
 *
 * ```ts
 * const operator = new DeliveryOperator(databases);
 * ```
 */
export class DeliveryOperator {
  readonly #databases: readonly DatabaseDelivery[];

  constructor(databases: Pick<DatabaseRegistry, 'deliveries'>) {
    this.#databases = databases.deliveries();
  }

  /** How far each handler is behind, per database. */
  lag(): Promise<DatabaseAnswers<ShardLag>> {
    return queryAll(this.#databases, async ({ store, shards }) =>
      (await store.cursors.lag()).map((lag) => ({ ...lag, shards })),
    );
  }

  /** Which process holds which slots, per database. */
  leases(): Promise<DatabaseAnswers<ShardLeases>> {
    return queryAll(this.#databases, async ({ store, shards }) => [
      { shards, slots: await store.leases.list() },
    ]);
  }

  /**
   * The heads of blocked models, database by database and oldest first; with `dead: true` only dead letters. Later events of these
   * models wait behind them. To include a database that failed, repeat the call with the same `after`.
   *
   * @param page.limit the maximum number, 1 to 1,000; there are fewer if events are large. Default 100
   * @throws UnknownHandlerError `unknown-handler` when the filter names a handler that no database knows
   */
  async findBlocked(
    filter: BlockedFilter = {},
    page: { readonly limit?: number; readonly after?: string | undefined } = {},
  ): Promise<BlockedPage> {
    return findBlockedPage(this.#databases, filter, page);
  }

  /**
   * Retries dead letters, with all their attempts again; the events behind them follow in order. Returns how many dead letters
   * there were.
   *
   * @param options.dryRun only counts them
   * @throws UnknownHandlerError `unknown-handler` when the filter names a handler that no database knows
   */
  async replay(filter: BlockedFilter, options: { readonly dryRun?: boolean } = {}): Promise<number> {
    if (options.dryRun !== true) return this.#sum(filter, (letters, own, step) => letters.replay(own, step));
    const count = await this.#count({ ...filter, dead: true });
    // Only dead letters are replayed.
    return filter.dead === false ? 0 : count;
  }

  /**
   * Removes dead letters, so that the events behind them continue. Returns how many there were.
   *
   * If the saved cursor of the handler has not passed an event yet (`explain` says `pending`), the event is read from the log
   * again if the process that holds its slot dies before the cursor is saved.
   *
   * @param filter with `dead: false` it selects events that will be tried again
   * @param options.dryRun only counts them
   * @throws UnknownHandlerError `unknown-handler` when the filter names a handler that no database knows
   */
  async skip(filter: BlockedFilter, options: { readonly dryRun?: boolean } = {}): Promise<number> {
    if (options.dryRun === true) return this.#count({ ...filter, dead: filter.dead ?? true });
    return this.#sum(filter, (letters, own, step) => letters.skip(own, step));
  }

  /**
   * Pauses a handler everywhere; nothing is lost. No further call of it begins, not even with events that were already read: in
   * this process once this resolves, in others within a third of the lease time.
   *
   * @param handler one of its names
   * @throws UnknownHandlerError `unknown-handler` when no database knows it
   */
  pause(handler: string): Promise<void> {
    return this.#setPaused(handler, true);
  }

  /**
   * Resumes a paused handler where it was: in this process at once, in others within a third of the lease time.
   *
   * @param handler one of its names
   * @throws UnknownHandlerError `unknown-handler` when no database knows it
   */
  resume(handler: string): Promise<void> {
    return this.#setPaused(handler, false);
  }

  /**
   * Removes a handler that no code has any more: its cursors, which keep old partitions of the log from being dropped, its names,
   * and with `discardBlocked` its blocked models. A handler with the same name starts as a new one afterwards. It uses the same
   * idempotency keys as the old one, so it does not repeat the old one's actions for as long as those keys are kept. If the old one
   * was renamed, this is true only of a handler with the old one's first name, which is its permanent id.
   *
   * @param handler one of its names
   * @param options.discardBlocked whether its blocked models and dead letters are removed as well; without it, they prevent the
   * removal
   * @throws UnknownHandlerError `unknown-handler` when no database knows it
   * @throws HandlerInUseError `handler-in-use` while a process has it, even one that is late to renew its leases, or while events
   * wait for it; it is not removed from such a database
   */
  retire(
    handler: string,
    { discardBlocked = false }: { readonly discardBlocked?: boolean } = {},
  ): Promise<void> {
    return this.#eachOf(handler, ({ cursors }, id) => cursors.retire(id, { discardBlocked }));
  }

  /**
   * Explains, for each handler, why an event has not been handled yet.
   *
   * @throws the error of a database that is down, if no other database knows the event: the one that is down may know it
   */
  async explain(eventId: string): Promise<EventExplanation> {
    const answers = await Promise.allSettled(
      this.#databases.map((database) => explainEvent(database, eventId)),
    );
    for (const answer of answers) {
      if (answer.status === 'fulfilled' && answer.value !== undefined) return answer.value;
    }
    for (const answer of answers) if (answer.status === 'rejected') throw answer.reason;
    return { kind: 'not-in-log' };
  }

  #setPaused(handler: string, paused: boolean): Promise<void> {
    return this.#eachOf(handler, async (store, id) => {
      await store.cursors.setPaused(id, paused);
      notifyPaused(store, id, paused);
    });
  }

  /**
   * Applies a change to a handler in every database that knows it, even if another database fails. In each database, the name is
   * first resolved to the permanent id that the handler has there.
   *
   * @throws the error of the database that failed, after all others are done, or an AggregateError if several failed
   */
  async #eachOf(handler: string, work: (store: DeliveryStore, id: string) => Promise<void>): Promise<void> {
    const { items: known, failures } = await queryAll(this.#databases, async ({ store }) => {
      const id = await store.cursors.find(handler);
      if (id !== undefined) await work(store, id);
      return id === undefined ? [] : [id];
    });
    throwFailures(failures);
    if (known.length === 0) throw new UnknownHandlerError(handler);
  }

  #count(filter: BlockedFilter): Promise<number> {
    return this.#sum(filter, async (letters, own) => ({
      count: await letters.countBlocked(own, countMax),
      next: undefined,
    }));
  }

  async #sum(
    filter: BlockedFilter,
    change: (letters: DeadLetters, own: BlockedFilter, step: StepPlace) => Promise<DeadLettersStep>,
  ): Promise<number> {
    const { items: counts, failures } = await queryAll(this.#databases, async ({ store }) => {
      const own = await filterIn(store, filter);
      if (own === undefined) return [];
      let count = 0;
      let after: string | undefined;
      do {
        const step = await change(store.deadLetters, own, { limit: stepMax, after });
        count += step.count;
        after = step.next;
      } while (after !== undefined);
      return [count];
    });
    throwFailures(failures);
    const { handler } = filter;
    if (handler !== undefined && counts.length === 0) throw new UnknownHandlerError(handler);
    return counts.reduce((sum, count) => sum + count, 0);
  }
}

type PauseListener = (handler: string, paused: boolean) => void;

/** The listeners of this process's deliveries, by the store that deliveries share with operators. */
const listenersByStore = new WeakMap<DeliveryStore, Set<PauseListener>>();

/**
 * Calls the listener with a handler's permanent id when an operator of this process pauses or resumes it; returns a function that
 * removes the listener.
 */
export function onPause(store: DeliveryStore, listener: PauseListener): () => void {
  const listeners = listenersByStore.get(store) ?? new Set();
  listenersByStore.set(store, listeners.add(listener));
  return () => listeners.delete(listener);
}

/**
 * Notifies the deliveries of this process immediately that a handler was paused or resumed; other processes see it at their next
 * lease renewal. Work that this triggers does not belong to the operator's request.
 */
function notifyPaused(store: DeliveryStore, handler: string, paused: boolean): void {
  for (const listener of listenersByStore.get(store) ?? []) outsideRequests(() => listener(handler, paused));
}
