import type { DatabaseConfig, ShardingConfig } from './sharding-config.js';
import { comparableAddress } from './database-url.js';
import type { ShardIdentifier } from './shard-identifier.js';

/** A database of a configuration, and what the configuration puts there. */
export interface ConfiguredDatabase {
  /** As the first member that names it has it. */
  readonly config: DatabaseConfig;
  /** In the order of the configuration; at least one. */
  readonly shards: readonly ShardIdentifier[];
}

/** The databases of a configuration, each once, however often and however spelled members name it. */
export function configuredDatabases({ members }: ShardingConfig): readonly ConfiguredDatabase[] {
  const places = members.flatMap(({ shard, databases }) =>
    [...databases.values()].map((config) => ({ shard, config })),
  );
  const groups = Map.groupBy(places, ({ config }) => databaseKey(config));
  return [...groups.values()].flatMap((group) => {
    const [first] = group;
    return first === undefined ? [] : [{ config: first.config, shards: group.map(({ shard }) => shard) }];
  });
}

/** What makes two configurations name the same connections, however their addresses are spelled. */
export function databaseKey({ name, address, username }: DatabaseConfig): string {
  return JSON.stringify([name, comparableAddress(address), username]);
}
