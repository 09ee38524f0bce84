import type { JSX } from 'preact';

import { to } from '../address.js';
import type { Snapshot } from '../answers.js';
import { count } from '../format.js';
import { snapshot } from '../live.js';
import { Loading, Screen, Time } from '../parts.js';
import { type Alert, alertsOf } from '../alerts.js';

/** What is wrong now, the worst first; one line if nothing is. */
export function Overview(): JSX.Element {
  const now = snapshot.value;
  return (
    <Screen title="Overview" about="Conditions to check, the worst first.">
      {now === undefined ? (
        <Loading />
      ) : (
        <>
          <Alerts of={alertsOf(now)} />
          <Figures of={now} />
        </>
      )}
    </Screen>
  );
}

function Alerts({ of }: { of: readonly Alert[] }): JSX.Element {
  if (of.length === 0) return <p class="calm">Nothing is wrong.</p>;
  return (
    <ul class="alerts" aria-label="What is wrong">
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
  const logged = of.shards.items.reduce((total, { eventCountEstimate }) => total + eventCountEstimate, 0);
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
      // A new database has no estimate yet.
      value: logged === 0 ? '–' : count(logged),
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
