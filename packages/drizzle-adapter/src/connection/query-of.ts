import type pg from 'pg';

/**
 * Makes a query of a prepared statement and its values.
 *
 * The statement's fields are inherited: pg copies the own fields of every query that it is given, property by property,
 * which took a tenth of a deposit's processor time.
 */
export function queryOf<Statement extends Omit<pg.QueryArrayConfig, 'values'> | pg.QueryConfig>(
  statement: Statement,
  values: unknown[],
): Statement & { readonly values: unknown[] } {
  return Object.assign(Object.create(statement) as Statement, { values });
}
