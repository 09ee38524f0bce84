import { ShardIdentifier } from '@framework/core';

const global = ShardIdentifier.of(0, 0);
const mexico = ShardIdentifier.of(1, 0);

/** The shard of a new wallet of a country. A wallet never changes its shard. */
export function placementOf(country: string): ShardIdentifier {
  return country === 'MX' ? mexico : global;
}
