import type { JSX } from 'preact';

import { to } from '../address.js';
import type { Shards as Answer } from '../answers.js';
import { bytes, count, duration } from '../format.js';
import { snapshot } from '../live.js';
import { type Column, Empty, Failures, Loading, Screen, ShardNames, Table, Time } from '../parts.js';

type Database = Answer['items'][number];

/** The databases with what they have. */
export function Shards(): JSX.Element {
  const answer = snapshot.value?.shards;
  return (
    <Screen title="Shards" about="The databases, the shards that they hold, and their logs.">
      {answer === undefined ? (
        <Loading />
      ) : (
        <>
          <Failures of={answer.failures} />
          {answer.items.length === 0 && <Empty>No database answers.</Empty>}
          <Table
            label="Databases"
            items={answer.items}
            keyOf={({ shards }) => shards.join()}
            columns={columns}
          />
        </>
      )}
    </Screen>
  );
}

const columns: readonly Column<Database>[] = [
  {
    title: 'Shards',
    cell: ({ shards }) => <a href={to(['events'], { shard: shards[0] })}>{<ShardNames of={shards} />}</a>,
  },
  { title: 'Server', cell: ({ server }) => server },
  { title: 'Events, estimated', isNumber: true, cell: ({ eventCountEstimate }) => count(eventCountEstimate) },
  { title: 'Newest event', cell: ({ newestEventDate }) => <Time of={newestEventDate} /> },
  { title: 'Size', isNumber: true, cell: ({ databaseBytes }) => bytes(databaseBytes) },
  { title: 'Epoch', isNumber: true, cell: ({ epoch }) => count(epoch) },
  { title: 'Its clock differs by', isNumber: true, cell: ({ now }) => clockDifference(now) },
];

/** Compared with the process that was asked; a second or two are the time of the question. */
function clockDifference(now: string): string {
  const asked = snapshot.value?.date;
  return asked === undefined ? '–' : duration(Math.abs(Date.parse(asked) - Date.parse(now)));
}
