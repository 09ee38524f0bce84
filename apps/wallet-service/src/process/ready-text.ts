import type { ShardIdentifier } from '@framework/core';
import { placementOf } from '../wallet/placement.js';
import type { ShardStart } from './until-ready.js';

const opening = 'it is being opened';

/** Wallets to try: each is placed on another shard. */
const examples = [
  { country: 'MX', currency: 'MXN' },
  { country: 'US', currency: 'USD' },
];

/**
 * What the terminal shows when the service serves: where it is, where the data is, which shards are not ready and why, and
 * what to try first on one that is.
 */
export function readyText(
  url: string,
  starts: readonly ShardStart[],
  { docs }: { readonly docs: boolean },
): string {
  const example = examples.find(({ country }) => isReady(placementOf(country), starts));
  const wallet = {
    country: example?.country,
    ownerId: '7c9e6679-7425-40de-944b-e07fc1f90ae7',
    currency: example?.currency,
    initialBalance: '100.00',
  };
  const curl = `curl ${url}/wallets -H 'Content-Type: application/json' -d '${JSON.stringify(wallet)}'`;
  return [
    '',
    headline('service', starts),
    '',
    `  Address  ${url}`,
    ...(docs ? [`  Docs     ${url}/docs`] : []),
    ...shardLines(starts),
    ...(example === undefined ? [] : [`  Try      ${curl}`]),
    '',
  ].join('\n');
}

/** The same for a process without requests. */
export function workerReadyText(starts: readonly ShardStart[]): string {
  return ['', headline('worker', starts), '', ...shardLines(starts), ''].join('\n');
}

/** What is shown while nothing can be served. */
export function waitingText(starts: readonly ShardStart[]): string {
  const shards = starts.map(({ place, reason = opening }) => `shard ${place}: ${reason}`);
  return `Waiting for ${shards.join('; ')}`;
}

/** What is shown when a shard becomes ready later, or is not for another reason. */
export function changeText({ place, ready, reason = opening }: ShardStart): string {
  return `Shard ${place} ${ready ? 'is ready' : `is not ready: ${reason}`}`;
}

function headline(role: string, starts: readonly ShardStart[]): string {
  const missingCount = starts.filter(({ ready }) => !ready).length;
  if (missingCount === 0) return `The wallet ${role} is ready.`;
  return `The wallet ${role} is ready, but for ${missingCount} of its ${starts.length} shards.`;
}

function shardLines(starts: readonly ShardStart[]): readonly string[] {
  return starts.map(({ place, ready, reason = opening }, index) => {
    const state = ready ? '' : `, NOT READY: ${reason}`;
    return `  ${index === 0 ? 'Shards ' : '       '}  ${place}${state}`;
  });
}

function isReady(shard: ShardIdentifier, starts: readonly ShardStart[]): boolean {
  return starts.some((start) => start.shard === shard && start.ready);
}
