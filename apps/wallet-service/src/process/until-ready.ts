import { DatabaseNotReadyError, type ShardIdentifier } from '@framework/core';
import { type ShardingConfig, databasePlace, primaryConfig } from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';

import type { WalletService } from '../http/wallet-app-env.js';
import { placementOf } from '../wallet/placement.js';

const reportIntervalMs = 2_000;

/** How a shard stands at the start of the process. */
interface ShardStart {
  readonly shard: ShardIdentifier;
  /** Names it, its host and its database, such as `(1, 0) mexico-1 on db-2:5432/mexico`. */
  readonly place: string;
  /** Whether it serves requests, and its handlers have their places in its log. */
  readonly ready: boolean;
  /** Why it does not, and what to do; `undefined` until that is known. */
  readonly reason: string | undefined;
}

/** What hears how far the start has come. */
export interface StartListener {
  /** Nothing can be served yet. */
  readonly onWaiting: (starts: readonly ShardStart[]) => void;
  /** Called once: these shards serve, and the others begin by themselves as soon as they can. */
  readonly onReady: (starts: readonly ShardStart[]) => void;
  /** A shard that was not ready then is, or its reason is another one. */
  readonly onChange: (start: ShardStart) => void;
}

/**
 * Waits until every shard serves, and tells what is waited for when that takes long or changes.
 *
 * @throws NoUsableShardError `no-usable-shard` when none can serve before somebody corrects something
 * @throws whatever else makes waiting pointless, such as a handler that a database refuses
 */
export async function untilReady(
  { databases, delivery }: Pick<WalletService, 'databases' | 'delivery'>,
  { members }: ShardingConfig,
  listener: StartListener,
): Promise<void> {
  const reasons = new Map<ShardIdentifier, DatabaseNotReadyError>();
  const serving = new Set<ShardIdentifier>();
  const all = Promise.all([
    databases.ready(({ shard, reason }) => {
      if (reason instanceof DatabaseNotReadyError) reasons.set(shard, reason);
    }),
    // A new handler has its place before the process says that the shard is ready.
    ...members.map(async ({ shard }) => {
      await delivery.startedOn(shard);
      serving.add(shard);
    }),
  ]).then(() => true);
  const starts = (): readonly ShardStart[] =>
    members.map((member) => {
      const { shard, name } = member;
      const address = member.databases.get(primaryConfig)?.address ?? '';
      const place = `(${shard.group}, ${shard.member}) ${name} on ${databasePlace(address)}`;
      const ready = serving.has(shard);
      return { shard, place, ready, reason: ready ? undefined : reasons.get(shard)?.message };
    });
  let told: readonly ShardStart[] | undefined;
  for (let done = false; !done;) {
    done = await Promise.race([all, delay(reportIntervalMs, false, { ref: false })]);
    const now = starts();
    const isServing = now.some(({ ready }) => ready);
    if (told?.some(({ ready }) => ready) === true) {
      now.filter((start, index) => isOther(start, told?.[index])).forEach(listener.onChange);
    } else if (isServing) {
      listener.onReady(now);
    } else if (now.some((start, index) => isOther(start, told?.[index]))) {
      listener.onWaiting(now);
    }
    told = now;
  }
}

function isOther(start: ShardStart, before: ShardStart | undefined): boolean {
  return start.ready !== before?.ready || start.reason !== before.reason;
}

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
