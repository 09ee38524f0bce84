import type { JSX } from 'preact';

import { to } from '../address.js';
import type { Consumer, ConsumerPlace } from '../answers.js';
import { ChangeButton } from '../change-dialog.js';
import { Chart } from '../chart.js';
import { count, duration, shortId } from '../format.js';
import { history, snapshot } from '../live.js';
import { Badge, type Column, Empty, Failures, Loading, Screen, ShardNames, Table, Time } from '../parts.js';
import { route } from '../route.js';

const nothing = (): void => undefined;

/** Each handler, or each relay, with its lag since the page was opened. */
export function Consumers({ relays }: { relays: boolean }): JSX.Element {
  const answer = snapshot.value?.consumers;
  const { handler } = route.value.query;
  const shown = answer?.items.filter(
    (consumer) => consumer.isRelay === relays && (handler === undefined || consumer.names.includes(handler)),
  );
  return (
    <Screen
      title={relays ? 'Relays' : 'Consumers'}
      about={
        relays
          ? 'What publishes the events to brokers, and how far it is.'
          : 'The handlers of the application, and how far each of them is in each database.'
      }
      actions={handler !== undefined && <a href={to(route.value.path)}>Show all</a>}
    >
      {shown === undefined ? <Loading /> : <Failures of={answer?.failures} />}
      {shown?.length === 0 && (
        <Empty>{relays ? 'No relay is configured in this process.' : 'No handler is registered.'}</Empty>
      )}
      {shown?.map((consumer) => (
        <ConsumerCard key={consumer.handler} consumer={consumer} />
      ))}
    </Screen>
  );
}

function ConsumerCard({ consumer }: { consumer: Consumer }): JSX.Element {
  const { handler, names, databases } = consumer;
  const points = history.get(handler) ?? [];
  const aliases = names.filter((name) => name !== handler);
  return (
    <section class="card" aria-label={handler}>
      <header class="card-head">
        <h2>{handler}</h2>
        <State of={databases} />
        <div class="actions">
          {/* Both, where a database did not answer when it was paused. */}
          {databases.some(({ paused }) => paused) && (
            <ChangeButton label="Resume …" onDone={nothing} wanted={resuming(handler)} />
          )}
          {databases.some(({ paused }) => !paused) && (
            <ChangeButton label="Pause …" onDone={nothing} wanted={pausing(handler)} />
          )}
          {databases.every(({ processes }) => processes.length === 0) && (
            <ChangeButton label="Retire …" onDone={nothing} wanted={retiring(handler)} />
          )}
        </div>
      </header>
      {aliases.length > 0 && <p class="muted">Also called {aliases.join(', ')}</p>}
      <div class="charts">
        <figure>
          <figcaption>Pending events</figcaption>
          <Chart
            label={`Pending events of ${handler} since this page was opened`}
            isTime
            x={points.map(({ seconds }) => seconds)}
            y={points.map(({ pendingCount }) => pendingCount)}
            write={compact}
          />
        </figure>
        <figure>
          <figcaption>Age of the oldest</figcaption>
          <Chart
            label={`Age of the oldest pending event of ${handler} since this page was opened`}
            isTime
            x={points.map(({ seconds }) => seconds)}
            y={points.map(({ oldestMs }) => oldestMs / 1_000)}
            write={ageOfSeconds}
          />
        </figure>
      </div>
      <Table
        label={`${handler} in each database`}
        items={databases}
        keyOf={({ shards }) => shards.join()}
        columns={columns}
        more={(place) => <Processes of={place} />}
      />
    </section>
  );
}

const columns: readonly Column<ConsumerPlace>[] = [
  { title: 'Shards', cell: ({ shards }) => <ShardNames of={shards} /> },
  { title: 'Pending', isNumber: true, cell: ({ pendingCount }) => count(pendingCount) },
  { title: 'Oldest', isNumber: true, cell: ({ oldestPendingMs }) => duration(oldestPendingMs) },
  {
    title: 'Blocked',
    isNumber: true,
    cell: ({ blockedCount, blockedIsLowerBound }) => count(blockedCount, blockedIsLowerBound),
  },
  {
    title: 'Dead letters',
    isNumber: true,
    cell: ({ deadCount, deadIsLowerBound }) => count(deadCount, deadIsLowerBound),
  },
  { title: 'Free slots', isNumber: true, cell: ({ freeSlotCount }) => count(freeSlotCount) },
  { title: 'Processes', isNumber: true, cell: ({ processes }) => count(processes.length) },
];

function Processes({ of: { processes } }: { of: ConsumerPlace }): JSX.Element {
  if (processes.length === 0) return <p class="muted">No process works for it here.</p>;
  return (
    <ul class="plain-list">
      {processes.map(({ processId, slotCount, untilDate }) => (
        <li key={processId}>
          <span class="id" title={processId}>
            {shortId(processId)}
          </span>{' '}
          works in {slotCount} slots, leased until <Time of={untilDate} />
        </li>
      ))}
    </ul>
  );
}

function State({ of: places }: { of: readonly ConsumerPlace[] }): JSX.Element {
  if (places.some(({ deadCount }) => deadCount > 0)) return <Badge tone="bad">dead letters</Badge>;
  if (places.some(({ paused }) => paused)) return <Badge tone="warn">paused</Badge>;
  if (places.some(({ freeSlotCount }) => freeSlotCount > 0)) return <Badge tone="warn">nobody works</Badge>;
  if (places.some(({ blockedCount }) => blockedCount > 0)) return <Badge tone="warn">blocked</Badge>;
  return <Badge tone="ok">running</Badge>;
}

function pausing(handler: string) {
  return {
    operation: 'pause',
    title: `Pause ${handler}`,
    consequence: 'It handles nothing more until somebody resumes it. Nothing is lost.',
    body: { handler },
    countsEvents: false,
  };
}

function resuming(handler: string) {
  return {
    operation: 'resume',
    title: `Resume ${handler}`,
    consequence: 'It continues where it was.',
    body: { handler },
    countsEvents: false,
  };
}

function retiring(handler: string) {
  return {
    operation: 'retire',
    title: `Retire ${handler}`,
    consequence:
      'It is removed with its place in the log, so that old months of the log can be dropped. Do this only when no code has it any more.',
    body: { handler },
    countsEvents: false,
  };
}

function compact(value: number): string {
  return value >= 10_000 ? `${Math.round(value / 1_000)}k` : `${value}`;
}

function ageOfSeconds(value: number): string {
  return duration(value * 1_000);
}
