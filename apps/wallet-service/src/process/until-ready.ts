import { type ShardIdentifier } from '@framework/core';
import { DatabaseNotReadyError, type ShardingConfig } from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';

import type { WalletService } from '../wallet-service.js';
import { placementOf } from '../wallet/placement.js';

const reportIntervalMs = 2_000;

/** The state of a shard while the process starts. */
interface ShardStart {
  readonly shard: ShardIdentifier;
  /** The shard with its host and database, such as `(1, 0) mexico-1 on db-2:5432/mexico`. */
  readonly place: string;
  /** Whether it serves requests and its handlers have their positions in its log. */
  readonly ready: boolean;
  /** Why it is not ready, and what to do; `undefined` until that is known. */
  readonly reason: string | undefined;
}

/** Is notified of how the start progresses. */
export interface StartListener {
  /** Called while no shard is ready yet. */
  readonly onWaiting: (starts: readonly ShardStart[]) => void;
  /** Called once, when at least one shard is ready. The others follow by themselves as soon as they can. */
  readonly onReady: (starts: readonly ShardStart[]) => void;
  /** Called afterwards when a shard becomes ready, or the reason why it is not ready changes. */
  readonly onChange: (start: ShardStart) => void;
}

/**
 * Waits until every shard is ready. Reports what it is waiting for if the wait is long, and again whenever that changes.
 *
 * @throws NoUsableShardError `no-usable-shard` when no shard can become ready until somebody corrects something
 * @throws any other error that makes waiting pointless, such as a handler that a database refuses
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
    // A new handler must have its position before the process reports the shard as ready.
    ...members.map(async ({ shard }) => {
      await delivery.startedOn(shard);
      serving.add(shard);
    }),
  ]).then(() => true);
  const starts = (): readonly ShardStart[] =>
    members.map((member) => {
      const { shard, name } = member;
      const place = `(${shard.group}, ${shard.member}) ${name} on ${databases.placeOf(shard)}`;
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

/** Example wallets, each on a different shard. */
const examples = [
  { country: 'MX', currency: 'MXN' },
  { country: 'US', currency: 'USD' },
];

/**
 * The text for the terminal when the service is ready: its address, the page for operators, the databases, which shards are not ready and why,
 * and a first request to try on a ready shard.
 */
export function readyText(
  url: string,
  starts: readonly ShardStart[],
  {
    docs,
    isOpen,
    consoleUrl,
    embeddedFile,
  }: {
    readonly docs: boolean;
    readonly isOpen: boolean;
    readonly consoleUrl?: string | undefined;
    /** The configuration of the embedded databases. */
    readonly embeddedFile?: string | undefined;
  },
): string {
  const example = examples.find(({ country }) => isReady(placementOf(country), starts));
  const wallet = {
    country: example?.country,
    ownerId: '7c9e6679-7425-40de-944b-e07fc1f90ae7',
    currency: example?.currency,
    initialBalance: '100.00',
  };
  const token = isOpen ? '' : ` -H "Authorization: Bearer $TOKEN"`;
  const curl = `curl ${url}/wallets${token} -H 'Content-Type: application/json' -d '${JSON.stringify(wallet)}'`;
  return [
    '',
    headline('service', starts),
    '',
    `  Address  ${url}`,
    ...(docs ? [`  Docs     ${url}/docs`] : []),
    ...(consoleUrl === undefined ? [] : [`  Console  ${consoleUrl}`]),
    ...(embeddedFile === undefined
      ? []
      : [`  Operate  npm run framework -- doctor --config ${embeddedFile}`]),
    ...(isOpen ? ['  Access   everybody on this computer, without a token: see framework.security.jwt'] : []),
    ...shardLines(starts),
    ...(example === undefined ? [] : [`  Try      ${curl}`]),
    '',
  ].join('\n');
}

/** The text for the terminal when a process that serves no requests is ready. */
export function workerReadyText(role: 'worker' | 'relay', starts: readonly ShardStart[]): string {
  return ['', headline(role, starts), '', ...shardLines(starts), ''].join('\n');
}

/** The text shown while no shard is ready. */
export function waitingText(starts: readonly ShardStart[]): string {
  const shards = starts.map(({ place, reason = opening }) => `shard ${place}: ${reason}`);
  return `Waiting for ${shards.join('; ')}`;
}

/** The text shown when a shard becomes ready later, or the reason why it is not ready changes. */
export function changeText({ place, ready, reason = opening }: ShardStart): string {
  return `Shard ${place} ${ready ? 'is ready' : `is not ready: ${reason}`}`;
}

function headline(role: string, starts: readonly ShardStart[]): string {
  const missingCount = starts.filter(({ ready }) => !ready).length;
  if (missingCount === 0) return `The wallet ${role} is ready.`;
  return `The wallet ${role} is ready, except for ${missingCount} of its ${starts.length} shards.`;
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
