import type { JSX } from 'preact';

import type { Keys as Answer } from '../answers.js';
import { useAnswer } from '../use-answer.js';
import { Answered, Empty, Facts, Field, Filters, IdLink, Screen, Table } from '../parts.js';
import { route } from '../route.js';
import { Deliveries, EventDetails, Payload } from '../tracked-event.js';

/** What was committed under an idempotency key. */
export function Keys(): JSX.Element {
  const { key, principal } = route.value.query;
  const asked = useAnswer<Answer>(key === undefined ? undefined : 'idempotency-keys', { key, principal });
  return (
    <Screen title="Idempotency keys" about="Whether a request was committed under its key, and what it did.">
      <Filters label="Which key">
        <Field name="key" label="Key" isRequired />
        <Field name="principal" label="Principal" placeholder="any" />
      </Filters>
      <Answered asked={asked}>
        {({ items, failures }) =>
          items.length === 0 ? (
            <Empty>
              {failures.length === 0
                ? 'Nothing was committed under this key, or it has expired.'
                : 'No database that answered has this key.'}
            </Empty>
          ) : (
            <>
              {items.map((item) => (
                <Found key={`${item.shards.join()} ${item.actionId}`} of={item} />
              ))}
            </>
          )
        }
      </Answered>
    </Screen>
  );
}

function Found({ of }: { of: Answer['items'][number] }): JSX.Element {
  const { key, actionId, actionName, action, ...facts } = of;
  return (
    <section class="card" aria-label={key}>
      <h2>{key}</h2>
      <p>
        It executed {actionName}, <IdLink id={actionId} />.
      </p>
      <Facts of={{ ...facts, shards: facts.shards.join(', ') }} />
      {action === undefined ? (
        <p class="muted">The log does not have the action any more.</p>
      ) : (
        <>
          <h3>Params</h3>
          <Payload of={action.actionParams} />
          <h3>Events</h3>
          <Table
            label="Events"
            items={action.events}
            keyOf={({ event }) => event.id}
            columns={[
              { title: 'Event', cell: ({ event }) => <IdLink id={event.id} /> },
              { title: 'Type', cell: ({ event }) => event.type },
              { title: 'Model', cell: ({ event }) => <IdLink id={event.modelId} screen="models" /> },
              { title: 'Delivery', cell: ({ deliveries }) => <Deliveries of={deliveries} /> },
            ]}
            more={({ event, deliveries }) => <EventDetails of={{ event, deliveries, shards: of.shards }} />}
          />
        </>
      )}
    </section>
  );
}
