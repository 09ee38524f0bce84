import { to } from './address.js';
import type { Consumer, Snapshot } from './answers.js';
import { counted, duration } from './format.js';

/** From this age of the oldest pending event on, a handler is said to lag. */
const lagMs = 60_000;

/** A condition that an operator should check. */
export interface Alert {
  readonly tone: 'warn' | 'bad';
  readonly what: string;
  readonly detail: string;
  readonly href: string;
}

/** Failed databases, dead letters, blocked events, paused handlers, lag, and slots without a process, in this order. */
export function alertsOf({ consumers, deadLetters, shards }: Snapshot): readonly Alert[] {
  const failed = new Map(
    [...consumers.failures, ...shards.failures, ...deadLetters.failures].map((failure) => [
      failure.shards.join(', '),
      failure.code,
    ]),
  );
  return [
    ...[...failed].map(([shard, code]) => ({
      tone: 'bad' as const,
      what: `Shard ${shard} does not answer`,
      detail: `Its database failed with ${code}; what is shown here lacks its part.`,
      href: to(['shards']),
    })),
    ...deadLetters.items.map(({ handler, errorLine, count: number, isLowerBound, shards: places }) => ({
      tone: 'bad' as const,
      what: `${counted(number, 'dead letter', isLowerBound)} of ${handler}`,
      detail: `${errorLine || 'No error was recorded'} (shard ${places.join(', ')})`,
      href: to(['dead-letters'], { handler, errorLine }),
    })),
    ...consumers.items.flatMap(consumerAlerts),
  ];
}

function consumerAlerts({ handler, isRelay, databases }: Consumer): readonly Alert[] {
  const href = to([isRelay ? 'relays' : 'consumers'], { handler });
  const shardsWhere = (test: (place: (typeof databases)[number]) => boolean): string | undefined => {
    const found = databases.filter(test).flatMap(({ shards }) => shards);
    return found.length === 0 ? undefined : `shard${found.length === 1 ? '' : 's'} ${found.join(', ')}`;
  };
  const alerts: Alert[] = [];
  const add = (tone: Alert['tone'], what: string, detail: string, link = href): number =>
    alerts.push({ tone, what, detail, href: link });
  // A dead letter counts as blocked only when the saved cursor has passed it.
  const waiting = databases.reduce(
    (sum, { blockedCount, deadCount }) => sum + Math.max(0, blockedCount - deadCount),
    0,
  );
  const isLowerBound = databases.some(({ blockedIsLowerBound }) => blockedIsLowerBound);
  if (waiting > 0)
    add(
      'warn',
      `${counted(waiting, 'blocked event', isLowerBound)} of ${handler}`,
      'They are retried by themselves, or wait for an earlier event of their model.',
      to(['dead-letters'], { handler, show: 'blocked' }),
    );
  const paused = shardsWhere((place) => place.paused);
  if (paused !== undefined) add('warn', `${handler} is paused`, `On ${paused}, until somebody resumes it.`);
  const late = shardsWhere(({ oldestPendingMs, paused: isPaused }) => oldestPendingMs > lagMs && !isPaused);
  if (late !== undefined) {
    const oldestMs = Math.max(...databases.map(({ oldestPendingMs }) => oldestPendingMs));
    add('warn', `${handler} lags by ${duration(oldestMs)}`, `On ${late}.`);
  }
  const free = databases.reduce((sum, { freeSlotCount }) => sum + freeSlotCount, 0);
  const unattended = shardsWhere(({ freeSlotCount }) => freeSlotCount > 0);
  if (unattended !== undefined)
    add('warn', `Nobody works for ${handler}`, `${counted(free, 'slot')} of ${unattended} have no process.`);
  return alerts;
}
