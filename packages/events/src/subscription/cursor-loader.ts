import type {
  BlockedHead,
  BlockedModel,
  BlockedModels,
  BlockedPlace,
  HandlerCursors,
  KnownHandler,
} from '@framework/core/adapter';

import { type WorkerContext, untilDone } from '../worker-context.js';
import type { Subscription } from './subscription.js';
import type { HeldSlot } from '../slots/held-slot.js';

/** The maximum number of blocked models that one statement reads. */
const modelsPage = 5_000;

type LoadedModel = BlockedModel & Pick<BlockedHead, 'hasFailed'>;

/** The parts of a subscription that are used here. */
type LoadedSubscription = Pick<Subscription, 'gain' | 'paused' | 'setPaused'>;

interface CursorLoaderOptions {
  readonly context: WorkerContext;
  readonly cursors: Pick<HandlerCursors, 'load' | 'known'>;
  readonly blocked: Pick<BlockedModels, 'models'>;
  /** Resolves when everything that is being written has its answer. */
  readonly settled: () => Promise<unknown>;
  readonly subscriptions: ReadonlyMap<string, LoadedSubscription>;
  /** Called when blocked models may be due. */
  readonly onBlocked: () => void;
}

/** Loads the positions of the handlers from the database, and passes them to their subscriptions. */
export class CursorLoader {
  readonly #options: CursorLoaderOptions;
  /** Counts the queries to the database, and the changes by operators of this process. */
  #newsCount = 0;
  /** The number of the last query or change that each subscription was told of; answers may arrive out of order. */
  readonly #knownOf = new WeakMap<LoadedSubscription, number>();

  constructor(options: CursorLoaderOptions) {
    this.#options = options;
  }

  /** Starts every subscription on its new slots; repeats until it succeeds, or the slots are lost. */
  async start(gained: readonly HeldSlot[]): Promise<void> {
    const { context, cursors: stored, subscriptions, settled, onBlocked } = this.#options;
    await untilDone(context, context.ended, async () => {
      // This process may have had a slot under the same token: what it is writing there is later than what would be loaded.
      await settled();
      const leases = gained.filter((slot) => slot.held);
      if (leases.length === 0) return;
      const slots = [...new Set(leases.map(({ slot }) => slot))];
      const news = ++this.#newsCount;
      const cursors = await stored.load(slots);
      // Read after the cursors: a cursor may have passed an event whose model was blocked meanwhile, if a failover has given the slot
      // to another process as well.
      const models = await this.#blockedModels(leases);
      for (const { handler, paused } of cursors) this.#apply(handler, paused, news);
      const cursorOf = new Map(cursors.map((cursor) => [placeOf(cursor), cursor]));
      const blocked = Map.groupBy(models, placeOf);
      for (const lease of leases) {
        const subscription = subscriptions.get(lease.handler);
        const place = placeOf(lease);
        const cursor = cursorOf.get(place);
        // Without a cursor, the handler was retired, or a failover has lost it, after the lease was given: the next renewal
        // notices that.
        if (subscription === undefined || cursor === undefined || !lease.held) continue;
        subscription.gain(lease, cursor.cursor, blocked.get(place) ?? []);
      }
      onBlocked();
    });
  }

  /**
   * Finds out which handlers an operator has paused or resumed.
   *
   * @returns everything that the database knows about its handlers
   */
  async refresh(): Promise<readonly KnownHandler[]> {
    const news = ++this.#newsCount;
    const handlers = await this.#options.cursors.known();
    for (const { handler, paused } of handlers) this.#apply(handler, paused, news);
    return handlers;
  }

  /** Applies a change that an operator of this process has made in the database. */
  setPaused(handler: string, paused: boolean): void {
    this.#apply(handler, paused, ++this.#newsCount);
  }

  /** Pauses or resumes a subscription, unless something newer is already known than the answer or change with this number. */
  #apply(handler: string, paused: boolean, news: number): void {
    const subscription = this.#options.subscriptions.get(handler);
    if (subscription === undefined || news < (this.#knownOf.get(subscription) ?? 0)) return;
    this.#knownOf.set(subscription, news);
    if (subscription.paused && !paused) this.#options.onBlocked();
    subscription.setPaused(paused);
  }

  async #blockedModels(places: readonly BlockedPlace[]): Promise<readonly LoadedModel[]> {
    const models: LoadedModel[] = [];
    for (let after: BlockedModel | undefined; ; after = models.at(-1)) {
      const page = await this.#options.blocked.models(places, { limit: modelsPage, after });
      models.push(...page);
      if (page.length < modelsPage) return models;
    }
  }
}

function placeOf({ handler, slot }: BlockedPlace): string {
  return `${handler} ${slot}`;
}
