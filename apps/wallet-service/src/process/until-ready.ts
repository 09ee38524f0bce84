import { setTimeout as delay } from 'node:timers/promises';
import type { DatabaseRegistry, ShardStatus } from '@framework/core';

const reportIntervalMs = 2_000;

/**
 * Waits until every shard can serve, and says what it waits for when that takes long or changes.
 *
 * @throws whatever makes waiting pointless, such as a migration that fails
 */
export async function untilReady(databases: DatabaseRegistry, say: (line: string) => void): Promise<void> {
  const ready = databases.ready().then(() => true);
  let said = '';
  while (!(await Promise.race([ready, delay(reportIntervalMs, false, { ref: false })]))) {
    const waiting = (await databases.status()).filter((shard) => !shard.ready).map(describe);
    const line = `Waiting for ${waiting.join('; ')}`;
    if (waiting.length > 0 && line !== said) say(line);
    said = line;
  }
}

function describe({ shard, name, reason }: ShardStatus): string {
  return `${shard.toString()} ${name} (${innermost(reason)})`;
}

/** The last cause tells most: `connect ECONNREFUSED 127.0.0.1:5432` rather than `not ready`. */
function innermost(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.cause instanceof Error) return innermost(error.cause);
  if (error instanceof AggregateError && error.errors.length > 0) return innermost(error.errors[0]);
  return error.message || error.name;
}
