import type {
  DatabaseDelivery,
  DatabaseRegistry,
  DeadLetters,
  DeadLettersStep,
  HandlerLag,
  LeasedSlot,
  Page,
  ParkedFilter,
  ParkedRow,
  ShardIdentifier,
  StepPlace,
} from '@framework/core';
import type { EventExplanation } from './event-explanation.js';
import { explainEvent } from './explain-event.js';
import { findParkedPage } from './find-parked-page.js';

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

/** What operators ask of delivery, and tell it, over all databases; needs no running delivery. */
export class DeliveryOperator {
  readonly #databases: readonly DatabaseDelivery[];

  constructor(databases: Pick<DatabaseRegistry, 'deliveries'>) {
    this.#databases = databases.deliveries();
  }

  /** How far each handler is behind, per database. */
  async lag(): Promise<readonly ShardLag[]> {
    const lags = await Promise.all(
      this.#databases.map(async ({ store, shards }) =>
        (await store.cursors.lag()).map((lag) => ({ ...lag, shards })),
      ),
    );
    return lags.flat();
  }

  /** Who holds which slots, per database. */
  async leases(): Promise<readonly ShardLeases[]> {
    return Promise.all(
      this.#databases.map(async ({ store, shards }) => ({ shards, slots: await store.leases.list() })),
    );
  }

  /** Parked events, database by database and the oldest first; dead letters only with `dead: true`. */
  findParked(
    filter: ParkedFilter = {},
    page: { readonly limit?: number; readonly after?: string } = {},
  ): Promise<Page<ParkedRow>> {
    return findParkedPage(this.#databases, filter, page);
  }

  /**
   * Gives dead letters their attempts back; what waits behind them follows in order. Says how many.
   *
   * @param options.dryRun only counts them
   */
  replay(filter: ParkedFilter, options: { readonly dryRun?: boolean } = {}): Promise<number> {
    if (options.dryRun === true) return this.#countDead(filter);
    return this.#sum((letters, step) => letters.replay(filter, step));
  }

  /**
   * Removes dead letters for good, so that what waits behind them goes on. Says how many.
   *
   * @param options.dryRun only counts them
   */
  skip(filter: ParkedFilter, options: { readonly dryRun?: boolean } = {}): Promise<number> {
    if (options.dryRun === true) return this.#countDead(filter);
    return this.#sum((letters, step) => letters.skip(filter, step));
  }

  /** Stops a handler everywhere; takes effect within a third of the lease time, and nothing is lost meanwhile. */
  async pause(handler: string): Promise<void> {
    await Promise.all(this.#databases.map(({ store }) => store.cursors.setPaused(handler, true)));
  }

  /** Lets a handler go on from where it was stopped; takes effect within a third of the lease time. */
  async resume(handler: string): Promise<void> {
    await Promise.all(this.#databases.map(({ store }) => store.cursors.setPaused(handler, false)));
  }

  /** Says why an event has not been handled yet, for each handler. */
  async explain(eventId: string): Promise<EventExplanation> {
    for (const database of this.#databases) {
      const explanation = await explainEvent(database, eventId);
      if (explanation !== undefined) return explanation;
    }
    return { kind: 'not-in-log' };
  }

  async #countDead(filter: ParkedFilter): Promise<number> {
    let count = 0;
    let after: string | undefined;
    do {
      const page = await this.findParked(
        { ...filter, dead: true },
        { limit: countPageMax, ...(after !== undefined && { after }) },
      );
      count += page.items.length;
      after = page.next;
    } while (after !== undefined);
    return count;
  }

  async #sum(change: (letters: DeadLetters, step: StepPlace) => Promise<DeadLettersStep>): Promise<number> {
    const counts = await Promise.all(
      this.#databases.map(async ({ store }) => {
        let count = 0;
        let after: string | undefined;
        do {
          const step = await change(store.deadLetters, {
            limit: stepMax,
            ...(after !== undefined && { after }),
          });
          count += step.count;
          after = step.next;
        } while (after !== undefined);
        return count;
      }),
    );
    return counts.reduce((sum, count) => sum + count, 0);
  }
}
