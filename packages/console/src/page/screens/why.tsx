import type { JSX } from 'preact';

import { to } from '../address.js';
import type { Why as Answer, TrackedEvent } from '../answers.js';
import { useAnswer } from '../use-answer.js';
import { count } from '../format.js';
import { Answered, type Column, Facts, Field, IdLink, Screen, Table, Time } from '../parts.js';
import { go, route } from '../route.js';
import { Deliveries, EventDetails } from '../tracked-event.js';

/** Explains what stands in the way of whatever has an id. */
export function Why(): JSX.Element {
  const [, id] = route.value.path;
  const asked = useAnswer<Answer>(id === undefined ? undefined : `why/${encodeURIComponent(id)}`);
  return (
    <Screen
      title="Why"
      about={id ?? 'What stands in the way of an event, a model, an action or something of the application.'}
      actions={id !== undefined && hasHistory(asked.answer) && <a href={to(['models', id])}>History</a>}
    >
      <form
        class="filters"
        key={id}
        aria-label="Which id"
        onSubmit={(event) => {
          event.preventDefault();
          const wanted = new FormData(event.currentTarget).get('id');
          if (typeof wanted === 'string' && wanted.trim() !== '') go(to(['why', wanted.trim()]));
        }}
      >
        <Field name="id" label="Another id" isRequired />
        <div class="filter-actions">
          <button type="submit" class="primary">
            Explain
          </button>
        </div>
      </form>
      <Answered asked={asked}>{(answer) => <Explained of={answer} />}</Answered>
    </Screen>
  );
}

/** Whether the id is that of a model, also of one that the application knows. */
function hasHistory(answer: Answer | undefined): boolean {
  return answer?.kind === 'model' || answer?.kind === 'extension';
}

function Explained({ of: { kind, sentences, sides, data } }: { of: Answer }): JSX.Element {
  const { events, ...rest } = data;
  const tracked = Array.isArray(events) ? (events as readonly TrackedEvent[]) : [];
  const withoutWaiting = Object.fromEntries(Object.entries(rest).filter(([name]) => name !== 'waiting'));
  return (
    <>
      <ul class={kind === 'unknown' ? 'sentences unknown' : 'sentences'} aria-label="Explanation">
        {sentences.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
      {sides.length > 0 && (
        <div class="sides">
          {sides.map(({ title, shard, fields, failure }) => (
            <section class="card" key={`${title} ${shard}`} aria-label={`${title} on shard ${shard}`}>
              <h2>
                {title} <span class="muted">shard {shard}</span>
              </h2>
              {failure !== undefined && (
                <p class="notice bad">
                  It did not answer: <code>{failure}</code>
                </p>
              )}
              {failure === undefined && fields === undefined && <p class="muted">Nothing is here.</p>}
              {fields !== undefined && <Facts of={fields} />}
            </section>
          ))}
        </div>
      )}
      {tracked.length > 0 && (
        <>
          <h2>Events</h2>
          <Table
            label="Events"
            items={tracked}
            keyOf={({ event }) => event.id}
            columns={columns}
            more={(item) => <EventDetails of={item} />}
          />
        </>
      )}
      {Object.keys(withoutWaiting).length > 0 && (
        <details>
          <summary>Data</summary>
          <Facts of={withoutWaiting} />
        </details>
      )}
    </>
  );
}

const columns: readonly Column<TrackedEvent>[] = [
  { title: 'Time', cell: ({ event }) => <Time of={event.createdDate} /> },
  { title: 'Event', cell: ({ event }) => <IdLink id={event.id} /> },
  { title: 'Type', cell: ({ event }) => event.type },
  { title: 'Model', cell: ({ event }) => <IdLink id={event.modelId} screen="models" /> },
  { title: 'Version', isNumber: true, cell: ({ event }) => count(event.modelVersion) },
  { title: 'Delivery', cell: ({ deliveries }) => <Deliveries of={deliveries} /> },
];
