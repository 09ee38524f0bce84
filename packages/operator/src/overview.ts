import type { DatabaseDelivery, LogOverview } from '@framework/core/adapter';

import { type OfShards, type PartialAnswer, ask, operatorStoreOf, shardTexts } from './answers.js';

/** What one database is and has, as far as estimates and indexes tell at once. */
export type ShardsOverview = OfShards<LogOverview>;

/** Asks each database what it is and has; one that does not answer is among the failures. */
export function findShards(databases: readonly DatabaseDelivery[]): Promise<PartialAnswer<ShardsOverview>> {
  return ask(databases, async (database) => [
    { ...(await operatorStoreOf(database).overview()), shards: shardTexts(database.shards) },
  ]);
}
