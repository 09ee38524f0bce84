import type { IdempotencySettings } from '../config/settings.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { DatabaseRegistry } from '../storage/database-registry.js';
import type { DeliveryStore } from '../storage/delivery-store.js';
import { type HandledEvent, type HandlerKey, handledEventOf } from '../storage/idempotency-keys.js';

interface HandledKey {
  readonly key: HandlerKey;
  readonly event: HandledEvent;
}

/**
 * Deletes keys that are no longer needed, a limited number at a time. It runs after commits, so it needs no timer, and
 * no caller waits for it.
 *
 * A client's key is deleted when it has expired. A handler's key is deleted only when its event cannot be delivered
 * again, according to the event's own database.
 */
export class KeySweep {
  readonly #databases: DatabaseRegistry;
  readonly #settings: IdempotencySettings;
  readonly #commitCounts = new Map<ShardIdentifier, number>();
  /**
   * Where the next sweep continues in the handlers' keys of each shard. Without it, keys that must stay would hide
   * those after them.
   */
  readonly #places = new Map<ShardIdentifier, string>();

  constructor(databases: DatabaseRegistry, settings: IdempotencySettings) {
    this.#databases = databases;
    this.#settings = settings;
  }

  /** Counts a keyed commit on a shard, and after enough of them deletes keys there. */
  countCommit(shard: ShardIdentifier): void {
    const { commitsPerSweep, sweepRowsMax } = this.#settings;
    const count = (this.#commitCounts.get(shard) ?? 0) + 1;
    this.#commitCounts.set(shard, count % commitsPerSweep);
    if (count < commitsPerSweep) return;
    // A later sweep makes up for a failure. The commit itself has succeeded in any case.
    const { keys } = this.#databases.transactionManager(shard);
    keys.deleteExpired(sweepRowsMax).catch(() => undefined);
    this.sweepHandlerKeys(shard).catch(() => undefined);
  }

  /** Deletes keys of handlers in a shard's database whose events cannot be delivered again. Returns how many. */
  async sweepHandlerKeys(shard: ShardIdentifier): Promise<number> {
    const { keyLifetimeMs, sweepRowsMax } = this.#settings;
    const { keys } = this.#databases.transactionManager(shard);
    const after = this.#places.get(shard);
    const page = await keys.findHandlerKeys({
      olderThanMs: keyLifetimeMs,
      limit: sweepRowsMax,
      ...(after !== undefined && { after }),
    });
    if (page.next === undefined) this.#places.delete(shard);
    else this.#places.set(shard, page.next);
    const handled = page.items.flatMap((key): readonly HandledKey[] => {
      const event = handledEventOf(key.source);
      return event === undefined ? [] : [{ key, event }];
    });
    const byStore = Map.groupBy(handled, ({ event }) => this.#storeOf(event.shard));
    const over = await Promise.all([...byStore].map(([store, each]) => keysThatAreOver(store, each)));
    const needless = over.flat();
    return needless.length === 0 ? 0 : keys.delete(needless);
  }

  /** The delivery store of a shard's database, if this process knows the shard. */
  #storeOf(shard: ShardIdentifier): DeliveryStore | undefined {
    return this.#databases.deliveries().find(({ shards }) => shards.includes(shard))?.store;
  }
}

/**
 * When the database cannot be asked, keys stay: a needless key costs one row, a missing key would cause a second
 * effect.
 */
async function keysThatAreOver(
  store: DeliveryStore | undefined,
  handled: readonly HandledKey[],
): Promise<readonly HandlerKey[]> {
  if (store === undefined) return [];
  const outstanding = await store.blocked
    .mayComeAgain(handled.map(({ event }) => event))
    .catch(() => undefined);
  if (outstanding === undefined) return [];
  const needed = new Set(outstanding.map(placeOf));
  return handled.filter(({ event }) => !needed.has(placeOf(event))).map(({ key }) => key);
}

function placeOf({ handler, eventId }: Pick<HandledEvent, 'handler' | 'eventId'>): string {
  return `${eventId} ${handler}`;
}
