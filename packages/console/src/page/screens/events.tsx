import type { JSX } from 'preact';

import { namesEvents } from '../address.js';
import type { EventPage, TrackedEvent } from '../answers.js';
import { useAnswer } from '../use-answer.js';
import { ChangeButton } from '../change-dialog.js';
import { count, instantOf } from '../format.js';
import { snapshot } from '../live.js';
import {
  Answered,
  type Column,
  Empty,
  Field,
  Filters,
  IdLink,
  Pager,
  Screen,
  Table,
  Time,
} from '../parts.js';
import { refine, route } from '../route.js';
import { Deliveries, EventDetails } from '../tracked-event.js';

/** The newest events of all logs, or those that a search finds. */
export function Events(): JSX.Element {
  const { tail, since, until, ...filter } = route.value.query;
  const isTail = tail === 'on' && filter['after'] === undefined;
  const query = { ...filter, since: since && instantOf(since), until: until && instantOf(until), limit: 50 };
  const asked = useAnswer<EventPage>('events', query, isTail ? snapshot.value?.date : undefined);
  return (
    <Screen
      title="Events"
      about="The logs, the newest first. A search by type, action or principal needs a time, a model or an action’s id."
      actions={
        <label class="switch">
          <input
            type="checkbox"
            checked={isTail}
            onChange={(event) => refine({ tail: event.currentTarget.checked ? 'on' : undefined })}
          />
          Follow
        </label>
      }
    >
      <Filters label="Search of events">
        <Field name="shard" label="Shard" placeholder="0/0" />
        <Field name="modelId" label="Model" />
        <Field name="type" label="Type" />
        <Field name="action" label="Action" />
        <Field name="actionId" label="Action’s id" />
        <Field name="principal" label="Principal" />
        <Field name="since" label="Since" isTime />
        <Field name="until" label="Until" isTime />
      </Filters>
      <PublishAgain filter={{ ...filter, since: query.since, until: query.until }} />
      <Answered asked={asked}>
        {({ items, next }) => (
          <>
            {items.length === 0 && (
              <Empty>
                {next === undefined
                  ? 'Nothing matches.'
                  : 'Nothing in this part of the log: go on with older events.'}
              </Empty>
            )}
            {items.length > 0 && (
              <Table
                label="Events"
                items={items}
                keyOf={({ event }) => event.id}
                columns={columns}
                more={(item) => <EventDetails of={item} />}
              />
            )}
            <Pager next={next} noun="Older events" />
          </>
        )}
      </Answered>
    </Screen>
  );
}

/** A button for each relay, which publishes again what the search finds. */
function PublishAgain({
  filter,
}: {
  filter: Readonly<Record<string, string | undefined>>;
}): JSX.Element | null {
  const { after: _page, ...given } = filter;
  const relays = snapshot.value?.consumers.items.filter(({ isRelay }) => isRelay) ?? [];
  if (relays.length === 0 || !namesEvents(given)) return null;
  return (
    <div class="actions">
      {relays.map(({ handler: relay }) => (
        <ChangeButton
          key={relay}
          label={`Publish again by ${relay} …`}
          wanted={{
            operation: 'publish-again',
            title: `Publish again by ${relay}`,
            consequence:
              'What the search finds and the relay has passed is published once more, with the attribute republished. Consumers that recognise repeats ignore it.',
            body: { relay, filter: given },
            countsEvents: true,
          }}
          onDone={() => undefined}
        />
      ))}
    </div>
  );
}

const columns: readonly Column<TrackedEvent>[] = [
  { title: 'Time', cell: ({ event }) => <Time of={event.createdDate} /> },
  { title: 'Type', cell: ({ event }) => event.type },
  { title: 'Model', cell: ({ event }) => <IdLink id={event.modelId} screen="models" /> },
  { title: 'Version', isNumber: true, cell: ({ event }) => count(event.modelVersion) },
  { title: 'Action', cell: ({ event }) => event.actionName },
  { title: 'Principal', cell: ({ event }) => <span class="whole">{event.principal}</span> },
  { title: 'Shard', cell: ({ shards }) => shards.join(', ') },
  { title: 'Delivery', cell: ({ deliveries }) => <Deliveries of={deliveries} /> },
];
