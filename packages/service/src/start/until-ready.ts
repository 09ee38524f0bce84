import type { ShardIdentifier } from '@framework/core';
import { DatabaseNotReadyError, type ShardingConfig } from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';

import type { ServiceParts } from '../service-definition.js';

const reportIntervalMs = 2_000;

/** The state of a shard while the process starts. */
export interface ShardStart {
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
 * @throws NoUsableShardError `no-usable-shard` when every shard needs an operator's correction before it can become ready
 * @throws any other error that makes waiting pointless, such as a handler that a database refuses
 */
export async function untilReady(
  { databases, delivery }: Pick<ServiceParts, 'databases' | 'delivery'>,
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
