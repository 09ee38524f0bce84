import type { JSX } from 'preact';

import { to } from '../address.js';
import type { BlockedEvent, BlockedPage, DeadLetterGroup, DeadLetters as Groups } from '../answers.js';
import { useAnswer } from '../use-answer.js';
import { ChangeButton, type WantedChange } from '../change-dialog.js';
import { count, counted } from '../format.js';
import { snapshot } from '../live.js';
import {
  Answered,
  Badge,
  type Column,
  Empty,
  IdLink,
  Pager,
  Screen,
  ShardNames,
  Table,
  Time,
} from '../parts.js';
import { refine, route } from '../route.js';

/** Dead letters by handler and error; with a filter, the blocked events that match it. */
export function DeadLetters(): JSX.Element {
  const { handler, errorLine, modelId, show } = route.value.query;
  const isList = errorLine !== undefined || modelId !== undefined || show !== undefined;
  return isList ? <Blocked /> : <Grouped handler={handler} />;
}

function Grouped({ handler }: { handler: string | undefined }): JSX.Element {
  const { after } = route.value.query;
  const total = snapshot.value?.deadLetters.items.reduce((sum, group) => sum + group.count, 0);
  const asked = useAnswer<Groups>('dead-letters', { handler, after }, total);
  return (
    <Screen
      title="Dead letters"
      about="Events for which a handler has used up its attempts, by the first line of the error."
      actions={<a href={to(['dead-letters'], { handler, show: 'blocked' })}>Events that are retried</a>}
    >
      <Answered asked={asked}>
        {({ items, next }) => (
          <>
            {items.length === 0 && <Empty>There are no dead letters.</Empty>}
            {items.map((group) => (
              <Group
                key={`${group.handler} ${group.shards.join()} ${group.errorLine}`}
                of={group}
                again={asked.refetch}
              />
            ))}
            {next !== undefined && <Pager next={next} />}
          </>
        )}
      </Answered>
    </Screen>
  );
}

function Group({ of: group, again }: { of: DeadLetterGroup; again: () => void }): JSX.Element {
  const { handler, errorLine, isLowerBound, shards, exampleEventId, oldestDate } = group;
  const filter = { handler, errorLine };
  return (
    <section class="card" aria-label={`${handler}: ${errorLine}`}>
      <header class="card-head">
        <h2>{handler}</h2>
        <Badge tone="bad">{counted(group.count, 'dead letter', isLowerBound)}</Badge>
        <div class="actions">
          <ChangeButton isPrimary label="Replay …" wanted={replaying(filter)} onDone={again} />
          <ChangeButton label="Skip …" wanted={skipping(filter)} onDone={again} />
        </div>
      </header>
      <p class="error-line">{errorLine === '' ? 'No error was recorded' : errorLine}</p>
      <p class="meta">
        <span>
          Shard <ShardNames of={shards} />
        </span>
        <span>
          oldest <Time of={oldestDate} />
        </span>
        <span>
          <a href={to(['why', exampleEventId])}>Why is the first one dead?</a>
        </span>
        <span>
          <a href={to(['dead-letters'], { handler, errorLine, show: 'dead' })}>List them</a>
        </span>
      </p>
    </section>
  );
}

function Blocked(): JSX.Element {
  const { handler, errorLine, modelId, show = 'dead', after } = route.value.query;
  const dead = { dead: 'true', blocked: 'false' }[show];
  const asked = useAnswer<BlockedPage>('blocked', { handler, errorLine, modelId, dead, after });
  const filter = {
    ...(handler !== undefined && { handler }),
    ...(errorLine !== undefined && { errorLine }),
    ...(modelId !== undefined && { modelId }),
  };
  const hasFilter = Object.keys(filter).length > 0;
  return (
    <Screen
      title={show === 'blocked' ? 'Blocked events' : 'Dead letters'}
      about={
        show === 'blocked'
          ? 'Events that will be tried again. Later events of their models wait behind them, and are not listed.'
          : undefined
      }
      actions={
        <>
          <a href={to(['dead-letters'])}>All groups</a>
          {hasFilter && show === 'dead' && (
            <>
              <ChangeButton
                isPrimary
                label="Replay all …"
                wanted={replaying(filter)}
                onDone={asked.refetch}
              />
              <ChangeButton label="Skip all …" wanted={skipping(filter)} onDone={asked.refetch} />
            </>
          )}
        </>
      }
    >
      <ul class="chips" aria-label="Filters">
        {Object.entries(filter).map(([name, value]) => (
          <li key={name}>
            {name}: {value === '' ? '(empty)' : value}{' '}
            <button
              type="button"
              class="plain"
              aria-label={`Remove ${name}`}
              onClick={() => refine({ [name]: undefined, show })}
            >
              ×
            </button>
          </li>
        ))}
      </ul>
      <Answered asked={asked}>
        {({ items, next }) => (
          <>
            {items.length === 0 ? (
              <Empty>Nothing matches.</Empty>
            ) : (
              <Table
                label="Blocked events"
                items={items}
                keyOf={({ handler: of, event }) => `${of} ${event.id}`}
                columns={columns}
                more={(item) => <Details of={item} again={asked.refetch} />}
              />
            )}
            <Pager next={next} />
          </>
        )}
      </Answered>
    </Screen>
  );
}

const columns: readonly Column<BlockedEvent>[] = [
  { title: 'Blocked', cell: ({ blockedDate }) => <Time of={blockedDate} /> },
  { title: 'Handler', cell: ({ handler }) => handler },
  { title: 'Event', cell: ({ event }) => <IdLink id={event.id} /> },
  { title: 'Type', cell: ({ event }) => event.type },
  { title: 'Model', cell: ({ event }) => <IdLink id={event.modelId} screen="models" /> },
  { title: 'Version', isNumber: true, cell: ({ event }) => count(event.modelVersion) },
  { title: 'Attempts', isNumber: true, cell: ({ attempts }) => count(attempts) },
  {
    title: 'State',
    cell: ({ dead, nextAttemptDate }) =>
      dead ? (
        <Badge tone="bad">dead letter</Badge>
      ) : (
        <>
          next <Time of={nextAttemptDate} />
        </>
      ),
  },
];

function Details({ of, again }: { of: BlockedEvent; again: () => void }): JSX.Element {
  const filter = { handler: of.handler, eventId: of.event.id };
  return (
    <>
      <pre class="json">{of.error ?? 'No error was recorded.'}</pre>
      {of.dead && (
        <div class="actions">
          <ChangeButton label="Replay this …" wanted={replaying(filter)} onDone={again} />
          <ChangeButton label="Skip this …" wanted={skipping(filter)} onDone={again} />
        </div>
      )}
    </>
  );
}

function replaying(filter: Readonly<Record<string, string>>): WantedChange {
  return {
    operation: 'replay',
    title: 'Replay dead letters',
    consequence:
      'They get all their attempts again, and the events behind them follow in the order of their versions.',
    body: { filter },
    countsEvents: true,
  };
}

function skipping(filter: Readonly<Record<string, string>>): WantedChange {
  return {
    operation: 'skip',
    title: 'Skip dead letters',
    consequence: 'The handler never gets these events. Those behind them continue.',
    body: { filter },
    countsEvents: true,
  };
}
