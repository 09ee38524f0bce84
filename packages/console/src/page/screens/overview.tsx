import type { JSX } from 'preact';

import type { Consumer, Snapshot } from '../answers.js';
import { count, counted, duration } from '../format.js';
import { snapshot } from '../live.js';
import { Loading, Screen, Time, type Tone } from '../parts.js';
import { to } from '../route.js';

/** From this age of the oldest pending event on, a handler is said to lag. */
const lagMs = 60_000;

interface Trouble {
  readonly tone: Tone;
  readonly what: string;
  readonly detail: string;
  readonly href: string;
}

/** What is wrong now, the worst first; one line if nothing is. */
export function Overview(): JSX.Element {
  const now = snapshot.value;
  return (
    <Screen title="Overview" about="What needs somebody, the worst first.">
      {now === undefined ? (
        <Loading />
      ) : (
        <>
          <Troubles of={troublesIn(now)} />
          <Figures of={now} />
        </>
      )}
    </Screen>
  );
}

function Troubles({ of }: { of: readonly Trouble[] }): JSX.Element {
  if (of.length === 0) return <p class="calm">Nothing is wrong.</p>;
  return (
    <ul class="troubles" aria-label="What is wrong">
      {of.map(({ tone, what, detail, href }) => (
        <li key={what} class={tone}>
          <a href={href}>
            <strong>{what}</strong>
            <span>{detail}</span>
          </a>
        </li>
      ))}
    </ul>
  );
}

function Figures({ of }: { of: Snapshot }): JSX.Element {
  const places = of.consumers.items.flatMap(({ databases }) => databases);
  const sum = (value: (place: (typeof places)[number]) => number): number =>
    places.reduce((total, place) => total + value(place), 0);
  const figures = [
    { name: 'databases', value: count(of.shards.items.length), href: to(['shards']) },
    { name: 'consumers', value: count(of.consumers.items.length), href: to(['consumers']) },
    {
      name: 'pending events',
      value: count(sum(({ pendingCount }) => pendingCount)),
      href: to(['consumers']),
    },
    { name: 'dead letters', value: count(sum(({ deadCount }) => deadCount)), href: to(['dead-letters']) },
    {
      name: 'logged, estimated',
      value: count(of.shards.items.reduce((total, { eventCountEstimate }) => total + eventCountEstimate, 0)),
      href: to(['events']),
    },
  ];
  return (
    <>
      <ul class="figures" aria-label="Figures">
        {figures.map(({ name, value, href }) => (
          <li key={name}>
            <a href={href}>
              <b>{value}</b> <span>{name}</span>
            </a>
          </li>
        ))}
      </ul>
      <p class="muted">
        As of <Time of={of.date} />
      </p>
    </>
  );
}

/** Failed databases, dead letters, blocked events, paused handlers, lag, and slots in which nobody works, in this order. */
export function troublesIn({ consumers, deadLetters, shards }: Snapshot): readonly Trouble[] {
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
    ...consumers.items.flatMap(troublesOf),
  ];
}

function troublesOf({ handler, isRelay, databases }: Consumer): readonly Trouble[] {
  const href = to([isRelay ? 'relays' : 'consumers'], { handler });
  const shardsWhere = (test: (place: (typeof databases)[number]) => boolean): string | undefined => {
    const found = databases.filter(test).flatMap(({ shards }) => shards);
    return found.length === 0 ? undefined : `shard${found.length === 1 ? '' : 's'} ${found.join(', ')}`;
  };
  const troubles: Trouble[] = [];
  const add = (tone: Tone, what: string, detail: string, link = href): number =>
    troubles.push({ tone, what, detail, href: link });
  const waiting = databases.reduce((sum, { blockedCount, deadCount }) => sum + blockedCount - deadCount, 0);
  if (waiting > 0)
    add(
      'warn',
      `${counted(waiting, 'blocked event')} of ${handler}`,
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
  return troubles;
}
