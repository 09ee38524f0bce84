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
  askDatabases,
  filterIn,
  findBlockedPage,
  throwFailures,
} from './blocked-page.js';
import { type EventExplanation, explainEvent } from './explain-event.js';

const countPageMax = 1_000;
/** How many dead letters one statement changes. */
const stepMax = 1_000;

/** How far a handler is behind in one database. */
export interface ShardLag extends HandlerLag {
  /** The shards whose events the database holds. */
  readonly shards: readonly ShardIdentifier[];
}

/** Who delivers the events of one database. */
export interface ShardLeases {
  readonly shards: readonly ShardIdentifier[];
  readonly slots: readonly LeasedSlot[];
}

/**
 * What operators ask of delivery, and tell it, over all databases; needs no running delivery.
 *
 * A database that is down fails its own part: what is asked comes with the `failures` of those that did not answer, and what
 * is told is done in all others before the call rejects, and may be told again.
 */
export class DeliveryOperator {
  readonly #databases: readonly DatabaseDelivery[];

  constructor(databases: Pick<DatabaseRegistry, 'deliveries'>) {
    this.#databases = databases.deliveries();
  }

  /** How far each handler is behind, per database. */
  lag(): Promise<DatabaseAnswers<ShardLag>> {
    return askDatabases(this.#databases, async ({ store, shards }) =>
      (await store.cursors.lag()).map((lag) => ({ ...lag, shards })),
    );
  }

  /** Who holds which slots, per database. */
  leases(): Promise<DatabaseAnswers<ShardLeases>> {
    return askDatabases(this.#databases, async ({ store, shards }) => [
      { shards, slots: await store.leases.list() },
    ]);
  }

  /**
   * Blocked events, database by database and the oldest first; dead letters only with `dead: true`. Ask again from the same
   * place for those of a database that failed.
   *
   * @param page.limit how many at most, 1 to 1,000; they are fewer where events are large. Default 100
   * @throws UnknownHandlerError `unknown-handler` when the filter names a handler that no database knows
   */
  async findBlocked(
    filter: BlockedFilter = {},
    page: { readonly limit?: number; readonly after?: string } = {},
  ): Promise<BlockedPage> {
    await this.#assertKnown(filter);
    return findBlockedPage(this.#databases, filter, page);
  }

  /**
   * Gives dead letters their attempts back; what waits behind them follows in order. Says how many.
   *
   * @param options.dryRun only counts them
   * @throws UnknownHandlerError `unknown-handler` when the filter names a handler that no database knows
   */
  async replay(filter: BlockedFilter, options: { readonly dryRun?: boolean } = {}): Promise<number> {
    if (options.dryRun !== true) return this.#sum(filter, (letters, own, step) => letters.replay(own, step));
    const count = await this.#count({ ...filter, dead: true });
    // What is no dead letter is not replayed.
    return filter.dead === false ? 0 : count;
  }

  /**
   * Removes dead letters, so that what waits behind them goes on. Says how many.
   *
   * One that the saved cursor of its handler has not passed yet (`explain` says `pending`) is read from the log again if the process
   * that holds its slot vanishes before the cursor is saved.
   *
   * @param filter with `dead: false` it is about events that are no dead letters yet, also those that only wait for earlier ones
   * @param options.dryRun only counts them
   * @throws UnknownHandlerError `unknown-handler` when the filter names a handler that no database knows
   */
  async skip(filter: BlockedFilter, options: { readonly dryRun?: boolean } = {}): Promise<number> {
    if (options.dryRun === true) return this.#count({ ...filter, dead: filter.dead ?? true });
    return this.#sum(filter, (letters, own, step) => letters.skip(own, step));
  }

  /**
   * Stops a handler everywhere, and nothing is lost meanwhile. No call of it begins any more, also not with what was read:
   * in this process when this resolves, in others within a third of the lease time.
   *
   * @param handler one of its names
   * @throws UnknownHandlerError `unknown-handler` when no database knows it
   */
  pause(handler: string): Promise<void> {
    return this.#setPaused(handler, true);
  }

  /**
   * Lets a handler go on from where it was stopped: in this process at once, in others within a third of the lease time.
   *
   * @param handler one of its names
   * @throws UnknownHandlerError `unknown-handler` when no database knows it
   */
  resume(handler: string): Promise<void> {
    return this.#setPaused(handler, false);
  }

  /**
   * Forgets a handler that no code has any more: its cursors, which keep old partitions of the log from being dropped, its
   * names, and with `discardBlocked` what waits for it. A handler of the same name starts as a new one afterwards, and still
   * executes nothing that the old one has executed: their keys are the same for as long as they are kept. One that was renamed
   * has to have the old one's first name, its permanent id, for that: under its present name, other keys are its own.
   *
   * @param handler one of its names
   * @param options.discardBlocked whether its blocked events and dead letters are lost; without, they are in the way
   * @throws UnknownHandlerError `unknown-handler` when no database knows it
   * @throws HandlerInUseError `handler-in-use` while a process has it, also one that is late to renew its leases, or events
   * wait for it; where that is so it stays
   */
  retire(
    handler: string,
    { discardBlocked = false }: { readonly discardBlocked?: boolean } = {},
  ): Promise<void> {
    return this.#eachOf(handler, ({ cursors }, id) => cursors.retire(id, { discardBlocked }));
  }

  /**
   * Says why an event has not been handled yet, for each handler.
   *
   * @throws whatever a database throws that is down, when no other one knows the event: it may
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
      tellPause(store, id, paused);
    });
  }

  /**
   * Applies a change to a handler in every database that knows it, by its permanent id there, even when another one
   * fails.
   *
   * @throws whatever the one that failed has thrown, after the others are done; all of it when several have
   */
  async #eachOf(handler: string, work: (store: DeliveryStore, id: string) => Promise<void>): Promise<void> {
    const { items: known, failures } = await askDatabases(this.#databases, async ({ store }) => {
      const id = await store.cursors.find(handler);
      if (id !== undefined) await work(store, id);
      return id === undefined ? [] : [id];
    });
    throwFailures(failures);
    if (known.length === 0) throw new UnknownHandlerError(handler);
  }

  async #count(filter: BlockedFilter): Promise<number> {
    let count = 0;
    let after: string | undefined;
    do {
      const page = await this.findBlocked(filter, {
        limit: countPageMax,
        ...(after !== undefined && { after }),
      });
      throwFailures(page.failures);
      count += page.items.length;
      after = page.next;
    } while (after !== undefined);
    return count;
  }

  /** A handler is unknown when all databases say so. */
  async #assertKnown({ handler }: BlockedFilter): Promise<void> {
    if (handler === undefined) return;
    const { items, failures } = await askDatabases(this.#databases, async ({ store }) => {
      const id = await store.cursors.find(handler);
      return id === undefined ? [] : [id];
    });
    if (items.length === 0 && failures.length === 0) throw new UnknownHandlerError(handler);
  }

  async #sum(
    filter: BlockedFilter,
    change: (letters: DeadLetters, own: BlockedFilter, step: StepPlace) => Promise<DeadLettersStep>,
  ): Promise<number> {
    const { items: counts, failures } = await askDatabases(this.#databases, async ({ store }) => {
      const own = await filterIn(store, filter);
      if (own === undefined) return [];
      let count = 0;
      let after: string | undefined;
      do {
        const step = await change(store.deadLetters, own, {
          limit: stepMax,
          ...(after !== undefined && { after }),
        });
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

/** Those who deliver in this process, by the store that they share with its operators. */
const listenersByStore = new WeakMap<DeliveryStore, Set<PauseListener>>();

/** Listens for what operators of this process pause and resume, by permanent ids; gives what ends it. */
export function onPause(store: DeliveryStore, listener: PauseListener): () => void {
  const listeners = listenersByStore.get(store) ?? new Set();
  listenersByStore.set(store, listeners.add(listener));
  return () => listeners.delete(listener);
}

/** Tells at once what other processes learn when they renew their leases; what goes on by it is no part of the operator's request. */
export function tellPause(store: DeliveryStore, handler: string, paused: boolean): void {
  for (const listener of listenersByStore.get(store) ?? []) outsideRequests(() => listener(handler, paused));
}
