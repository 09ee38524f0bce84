import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { openStore } from './fixtures/delivery-store.js';
import { query } from './fixtures/query.js';

const reference = readFileSync(new URL('../../../docs/reference/tables.md', import.meta.url), 'utf8');

/** Each column of the reference with its type, as `table.column type`. */
function documented(): readonly string[] {
  const sections = [...reference.matchAll(/^##+ `eventlog\.(\w+)`\n([^]*?)(?=^##|$(?![^]))/gm)];
  return sections.flatMap(([, table = '', section = '']) =>
    [...section.matchAll(/^\| ((?:`\w+`(?:, )?)+) +\| ([^|]+?) +\|/gm)].flatMap(
      ([, names = '', types = '']) => {
        const columns = quoted(names);
        const typeOf = quoted(types);
        // One type may apply to all columns of a row.
        return columns.map((column, index) => `${table}.${column} ${typeOf[index] ?? typeOf[0]}`);
      },
    ),
  );
}

function quoted(text: string): readonly string[] {
  return [...text.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);
}

test('the reference lists every column that the migrations create, with its type, and no other', async () => {
  const { url } = await openStore();
  const rows = await query<{ readonly column: string }>(
    url,
    `select format('%s.%s %s', c.relname, a.attname,
              replace(format_type(a.atttypid, a.atttypmod), 'timestamp with time zone', 'timestamptz')) as column
     from pg_class c join pg_attribute a on a.attrelid = c.oid
     where c.relnamespace = 'eventlog'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
       and a.attnum > 0 and not a.attisdropped and c.relname <> 'migrations'`,
  );
  expect(documented().toSorted()).toEqual(rows.map(({ column }) => column).toSorted());
});
