import type { JSX } from 'preact';

import type { PartialPage, Row } from '../answers.js';
import { useAnswer } from '../use-answer.js';
import { isNumeric } from '../exact-json.js';
import { isUuid } from '../format.js';
import { Answered, type Column, Empty, IdLink, Pager, Screen, ShardNames, Table, Value } from '../parts.js';
import { route } from '../route.js';
import { wordsOf } from '../screens.js';
import { about } from '../session.js';

/** A table of the application: its columns are the fields of its rows. */
export function View(): JSX.Element {
  const [, name = ''] = route.value.path;
  const { after } = route.value.query;
  const asked = useAnswer<PartialPage<Row>>(`views/${encodeURIComponent(name)}`, { limit: 50, after });
  const summary = about.value?.views.find((view) => view.name === name)?.summary;
  return (
    <Screen title={wordsOf(name)} {...(summary !== undefined && { about: summary })}>
      <Answered asked={asked}>
        {({ items, next }) => (
          <>
            {items.length === 0 ? (
              <Empty>There is nothing.</Empty>
            ) : (
              <Table
                label={wordsOf(name)}
                items={items}
                keyOf={({ id }, index) => (typeof id === 'string' ? id : `${index}`)}
                columns={columnsOf(items)}
              />
            )}
            <Pager next={next} />
          </>
        )}
      </Answered>
    </Screen>
  );
}

function columnsOf(rows: readonly Row[]): readonly Column<Row>[] {
  const names = [...new Set(rows.flatMap(Object.keys))].sort((one, other) => rank(one) - rank(other));
  return names.map((name) => ({
    title: wordsOf(name),
    isNumber: rows.every((row) => row[name] === undefined || isNumeric(row[name])),
    cell: (row) => <Cell name={name} of={row[name]} />,
  }));
}

function Cell({ name, of }: { name: string; of: unknown }): JSX.Element {
  if (isUuid(of) || (name === 'id' && typeof of === 'string')) return <IdLink id={of} />;
  if (Array.isArray(of) && of.every((each) => typeof each === 'string')) return <ShardNames of={of} />;
  return <Value of={of} />;
}

/** The id comes first. */
function rank(name: string): number {
  return name === 'id' ? 0 : 1;
}
