import { ShardIdentifier } from '@framework/core';

const global = ShardIdentifier.of(0, 0);
const mexico = ShardIdentifier.of(1, 0);

/** Decides, once for its life, on which shard a wallet of a country stands. */
export function placementOf(country: string): ShardIdentifier {
  return country === 'MX' ? mexico : global;
}
