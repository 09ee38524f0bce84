import type { ShardIdentifier } from '@framework/core';

/** What operators of an application do about its databases, for messages. */
export interface OperatorCommands {
  /** Applies the migrations, such as `npm run migrate`. Default: the call of `migrateShards`. */
  readonly migrate?: string;
  /** Lets the databases that are configured for shards hold them. Default: the call of `adoptShards`. */
  readonly adopt?: (shards: readonly ShardIdentifier[]) => string;
}

/** The functions of this package. */
export const defaultCommands: Required<OperatorCommands> = {
  migrate: 'migrateShards(sharding, migrationsFolder)',
  adopt: (shards) => {
    const list = shards.map(({ group, member }) => `ShardIdentifier.of(${group}, ${member})`);
    return `adoptShards(sharding, [${list.join(', ')}])`;
  },
};
