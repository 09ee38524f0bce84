import { ConstraintViolationError } from '@framework/core';
import type { Change } from '@framework/core/adapter';
import pg from 'pg';

import type { Row } from './row-encoder.js';

/**
 * The addition that the database refused because a row with its id exists; `undefined` when it refused something else.
 *
 * The server names the columns of the violated key and its values, and for a partitioned table the partition instead of the
 * table. So the id decides, in a key that contains the id's column. A role that may not read the table is not told the values: then
 * the default name of a primary key decides.
 *
 * @param error as `storageError` returns it
 */
export function existingAddition(error: unknown, changes: readonly Change[]): Change | undefined {
  if (!(error instanceof ConstraintViolationError) || error.kind !== 'unique') return undefined;
  const { columns, constraint, table, cause } = error;
  const additions = changes.filter(({ kind }) => kind === 'add');
  if (columns.length === 0)
    return constraint === `${table}_pkey`
      ? additions.find((change) => nameIn(tableOf(change)) === table)
      : undefined;
  const detail = cause instanceof pg.DatabaseError ? (cause.detail ?? '') : '';
  const values = detail.slice(detail.indexOf(')=(') + 3, detail.lastIndexOf(')'));
  return additions.find((change) => {
    const place = columns.indexOf(nameIn(idColumnOf(change)));
    const found = columns.length === 1 ? values : values.split(', ')[place];
    return place !== -1 && found === change.model.id.value;
  });
}

function tableOf({ row }: Change): string {
  return (row as Row).shape.table;
}

function idColumnOf({ row }: Change): string {
  const { columns, idIndex } = (row as Row).shape;
  return columns[idIndex] ?? '';
}

/** The last name in a quoted name. */
function nameIn(quoted: string): string {
  const [, name = ''] = /"((?:[^"]|"")*)"$/.exec(quoted) ?? [];
  return name.replaceAll('""', '"');
}
