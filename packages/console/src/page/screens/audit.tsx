import type { JSX } from 'preact';

import type { AuditPage } from '../answers.js';
import { useAnswer } from '../use-answer.js';
import { count } from '../format.js';
import {
  Answered,
  Badge,
  type Column,
  Empty,
  Facts,
  Pager,
  Screen,
  ShardNames,
  Table,
  Time,
} from '../parts.js';
import { route } from '../route.js';

type Recorded = AuditPage['items'][number];

/** What operators have changed. */
export function Audit(): JSX.Element {
  const { after } = route.value.query;
  const asked = useAnswer<AuditPage>('audit', { after, limit: 50 });
  return (
    <Screen
      title="Audit"
      about="What operators have changed: who, why, and what came of it. The newest first in each database."
    >
      <Answered asked={asked}>
        {({ items, next }) => (
          <>
            {items.length === 0 ? (
              <Empty>Nothing was changed yet.</Empty>
            ) : (
              <Table
                label="Changes"
                items={items}
                keyOf={({ changeId, shards }) => `${changeId} ${shards.join()}`}
                columns={columns}
                more={({ changeId, target, ended }) => (
                  <Facts of={{ change: changeId, ...target, ...ended }} />
                )}
              />
            )}
            <Pager next={next} />
          </>
        )}
      </Answered>
    </Screen>
  );
}

const columns: readonly Column<Recorded>[] = [
  { title: 'Begun', cell: ({ begunDate }) => <Time of={begunDate} /> },
  { title: 'Operation', cell: ({ operation }) => operation },
  { title: 'By', cell: ({ actor }) => actor },
  { title: 'Reason', cell: ({ reason }) => reason },
  { title: 'Shard', cell: ({ shards }) => <ShardNames of={shards} /> },
  { title: 'Events', isNumber: true, cell: ({ ended }) => (ended === undefined ? '' : count(ended.count)) },
  { title: 'Outcome', cell: outcome },
];

function outcome({ ended }: Recorded): JSX.Element {
  if (ended === undefined) return <Badge tone="warn">no end</Badge>;
  if (ended.outcome === 'done') return <Badge tone="ok">done</Badge>;
  return <Badge tone="bad">failed: {ended.errorCode ?? 'unknown'}</Badge>;
}
