import type { JSX } from 'preact';

import { to } from '../address.js';
import type { EventPage, TrackedEvent } from '../answers.js';
import { useAnswer } from '../use-answer.js';
import { Chart } from '../chart.js';
import { isNumeric } from '../exact-json.js';
import { count } from '../format.js';
import { Answered, type Column, Empty, Field, Pager, Screen, Table, Time } from '../parts.js';
import { go, refine, route } from '../route.js';
import { Deliveries, EventDetails } from '../tracked-event.js';

/** The history of a model, or the question which one. */
export function Models(): JSX.Element {
  const [, id] = route.value.path;
  return id === undefined ? <Question /> : <History key={id} id={id} />;
}

function Question(): JSX.Element {
  return (
    <Screen
      title="Models"
      about="The history of one model: its versions, its events, and what became of them."
    >
      <form
        class="filters"
        aria-label="Which model"
        onSubmit={(event) => {
          event.preventDefault();
          const id = new FormData(event.currentTarget).get('id');
          if (typeof id === 'string' && id.trim() !== '') go(to(['models', id.trim()]));
        }}
      >
        <Field name="id" label="Id of the model" isRequired />
        <div class="filter-actions">
          <button type="submit" class="primary">
            Show
          </button>
        </div>
      </form>
    </Screen>
  );
}

function History({ id }: { id: string }): JSX.Element {
  const { after } = route.value.query;
  const asked = useAnswer<EventPage>(`models/${encodeURIComponent(id)}`, { after });
  const name = asked.answer?.items[0]?.event.modelName;
  return (
    <Screen
      title={name === undefined ? 'Model' : name}
      about={id}
      actions={<a href={to(['why', id])}>Why</a>}
    >
      <Answered asked={asked}>
        {({ items, next }) => (
          <>
            {items.length === 0 ? (
              <Empty>No database has events of this model.</Empty>
            ) : (
              <>
                <Line items={items} isNewest={next === undefined} />
                <Table
                  label="Events of the model"
                  items={items}
                  keyOf={({ event }) => event.id}
                  columns={columnsFor(items)}
                  more={(item) => <EventDetails of={item} />}
                />
              </>
            )}
            <Pager next={next} noun="Later versions" />
          </>
        )}
      </Answered>
    </Screen>
  );
}

/** A field that is a number in most events makes a line over the versions, such as that of a balance. */
function Line(props: { items: readonly TrackedEvent[]; isNewest: boolean }): JSX.Element | null {
  const { items, isNewest } = props;
  const fields = numericFields(items);
  const { field = fields[0] } = route.value.query;
  if (field === undefined) return null;
  const points = items.flatMap(({ event }) => {
    const value = payloadOf(event.payload)[field];
    return isNumeric(value) ? [{ version: event.modelVersion, value }] : [];
  });
  const last = points.at(-1);
  return (
    <figure class="card">
      <figcaption>
        <label>
          Line of{' '}
          <select value={field} onChange={(event) => refine({ field: event.currentTarget.value })}>
            {fields.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </label>
        {last !== undefined && (
          <span class="muted">
            {' '}
            {isNewest ? `now ${last.value}` : `${last.value} in version ${count(last.version)}`}, by version
          </span>
        )}
      </figcaption>
      <Chart
        key={field}
        label={`${field} by version`}
        isTime={false}
        x={points.map(({ version }) => version)}
        y={points.map(({ value }) => Number(value))}
      />
    </figure>
  );
}

/** The numeric fields of the payloads; the one that most events have comes first, then the one that ends like a balance. */
function numericFields(items: readonly TrackedEvent[]): readonly string[] {
  const found = new Map<string, number>();
  for (const { event } of items)
    for (const [name, value] of Object.entries(payloadOf(event.payload)))
      if (isNumeric(value)) found.set(name, (found.get(name) ?? 0) + 1);
  return [...found].sort((one, other) => weight(other) - weight(one)).map(([name]) => name);
}

function weight([name, times]: readonly [string, number]): number {
  return times + (/balance|total/i.test(name) ? 0.5 : 0);
}

function payloadOf(payload: unknown): Readonly<Record<string, unknown>> {
  return typeof payload === 'object' && payload !== null
    ? (payload as Readonly<Record<string, unknown>>)
    : {};
}

function columnsFor(items: readonly TrackedEvent[]): readonly Column<TrackedEvent>[] {
  const numeric = numericFields(items).slice(0, 2);
  return [
    { title: 'Version', isNumber: true, cell: ({ event }) => count(event.modelVersion) },
    { title: 'Time', cell: ({ event }) => <Time of={event.createdDate} /> },
    { title: 'Type', cell: ({ event }) => event.type },
    ...numeric.map((field) => ({
      title: field,
      isNumber: true,
      cell: ({ event }: TrackedEvent) => {
        const value = payloadOf(event.payload)[field];
        return isNumeric(value) ? value : '';
      },
    })),
    { title: 'Action', cell: ({ event }) => event.actionName },
    { title: 'Principal', cell: ({ event }) => <span class="whole">{event.principal}</span> },
    { title: 'Delivery', cell: ({ deliveries }) => <Deliveries of={deliveries} /> },
  ];
}
