import type { JSX } from 'preact';

import type { TrackedEvent } from './answers.js';
import { Badge, Facts, IdLink, type Tone, Value } from './parts.js';

type Delivery = TrackedEvent['deliveries'][number];

const tones: Readonly<Record<Delivery['state'], Tone>> = {
  passed: 'ok',
  pending: 'quiet',
  blocked: 'warn',
  'dead-letter': 'bad',
};

/** Whether all handlers have passed an event; otherwise how many have not. Pointing at them shows their names. */
export function Deliveries({ of }: { of: readonly Delivery[] }): JSX.Element {
  if (of.length === 0) return <span class="muted">no handler</span>;
  const left = Map.groupBy(
    of.filter(({ state }) => state !== 'passed'),
    ({ state }) => state,
  );
  if (left.size === 0) return <Badge tone="ok">all passed</Badge>;
  return (
    <>
      {[...left].map(([state, deliveries]) => (
        <span key={state} title={deliveries.map(({ handler }) => handler).join(', ')}>
          <Badge tone={tones[state]}>
            {deliveries.length} {state === 'dead-letter' ? 'dead' : state}
          </Badge>
        </span>
      ))}
    </>
  );
}

/** Everything that the log has of an event, and what became of it for each handler. */
export function EventDetails({ of: { event, deliveries } }: { of: TrackedEvent }): JSX.Element {
  return (
    <div class="columns">
      <section>
        <h3>Payload</h3>
        {event.omitted === true ? (
          <p class="muted">It is large: ask why for all of it.</p>
        ) : (
          <Payload of={event.payload} />
        )}
        <h3>Params of the action</h3>
        <Payload of={event.actionParams} />
      </section>
      <section>
        <h3>Event</h3>
        <dl class="facts">
          <div>
            <dt>id</dt>
            <dd>
              <IdLink id={event.id} />
            </dd>
          </div>
          <div>
            <dt>action</dt>
            <dd>
              <IdLink id={event.actionId} />
            </dd>
          </div>
        </dl>
        <Facts
          of={{
            slot: event.slot,
            namespace: event.namespace,
            ordinal: event.ordinal,
            started: event.startedDate,
            created: event.createdDate,
            ...event.headers,
          }}
        />
        <h3>Handlers</h3>
        <ul class="plain-list">
          {deliveries.map(({ handler, state }) => (
            <li key={handler}>
              <Badge tone={tones[state]}>{state}</Badge> {handler}
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}

/** Fields as they are; what is nested as JSON. */
export function Payload({ of }: { of: unknown }): JSX.Element {
  if (typeof of !== 'object' || of === null || Array.isArray(of)) return <Value of={of} />;
  return Object.keys(of).length === 0 ? (
    <p class="muted">empty</p>
  ) : (
    <Facts of={of as Readonly<Record<string, unknown>>} />
  );
}
