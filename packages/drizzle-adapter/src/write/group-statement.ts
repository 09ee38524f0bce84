import type { RowShape } from './row-encoder.js';
import { eventColumnTypes, eventColumns, keyConflictClause, lockTimeoutMs } from './write-statement.js';

/** Everything that determines the text of a group's statement. The values and their number do not. */
export interface GroupShape {
  /** The shapes of guarded updates, ordered by table. */
  readonly updates: readonly RowShape[];
  /** The shapes of additions, ordered by table. */
  readonly additions: readonly RowShape[];
  readonly keyed: boolean;
  /** Whether each unit has at most one guarded row. Then the update itself shows whether the unit is written. */
  readonly direct: boolean;
}

/**
 * Sets the lock timeout until the end of the transaction. Clauses that wait for locks must refer to it so that they run
 * after it.
 */
const timeoutClause = `limited as materialized (select set_config('lock_timeout', '${lockTimeoutMs}', true))`;
const isTimed = '(select count(*) from limited) >= 0';

/** The columns of {@link groupStatement} for idempotency keys. */
const keyColumns = [
  ['key', 'text'],
  ['principal', 'text'],
  ['namespace', 'text'],
  ['action_id', 'uuid'],
  ['action_name', 'text'],
  ['fingerprint', 'text'],
  ['result', 'jsonb'],
  ['lifetime', 'bigint'],
  ['source', 'text'],
] as const;

/** The shape's key in the cache of statements. */
export function groupShapeKey({ updates, additions, keyed, direct }: GroupShape): string {
  return `${joinedKeys(updates)}|${joinedKeys(additions)}|${keyed ? 'keyed' : ''}|${direct ? 'direct' : 'locked'}`;
}

/**
 * Builds one statement that writes the plans of many actions, each plan completely or not at all.
 *
 * Plans that must be written together form a unit, and every parameter row carries its unit. A unit is bad when one of
 * its guarded rows has another version or its idempotency key is taken. Nothing of a bad unit is written; other units
 * are not affected. Keys come first, then rows in the given order, table by table, as in all other writes.
 *
 * With `direct`, each guarded update checks itself. Otherwise all guarded rows are locked first, and updated if all
 * rows of their units were found. In three cases the statement raises SQLSTATE FW001, which rolls everything back so
 * that the caller writes the plans one by one: a row disappears in between, a trigger skips an addition, or a unit with
 * a key turns out to be bad. A lock that is not available in time has the same effect, with SQLSTATE 55P03.
 *
 * Every parameter is a `text[]`. For keys: the unit and {@link keyColumns}. For each shape of updates: the unit, the
 * expected version and the values. For each shape of additions: the unit and the values. For events: the unit and the
 * columns of the log. The result is one row: per shape of updates the numbers of the missing rows, from 1, joined by
 * commas; then the units whose keys are taken.
 */
export function groupStatement(shape: GroupShape): string {
  const { updates, additions, keyed, direct } = shape;
  const clauses: string[] = [timeoutClause];
  let parameter = 1;
  const given = (names: readonly string[], alias: string): string => {
    const arrays = names.map((_name, index) => `$${parameter + index}::text[]`).join(', ');
    parameter += names.length;
    return `unnest(${arrays}) with ordinality as ${alias}(${names.join(', ')}, n)`;
  };
  if (keyed) clauses.push(...keyClauses(given(['unit', ...keyColumns.map(([name]) => name)], 'g')));
  const notTaken = keyed ? `g.unit <> all(array(select unit from taken))` : undefined;
  const notBad = 'g.unit <> all(array(select unit from bad))';
  let before = keyed ? '(select count(*) from k) >= 0' : isTimed;
  updates.forEach((each, index) => {
    const names = ['unit', 'expected', ...valueNames(each)];
    clauses.push(`g${index} as materialized (select * from ${given(names, 'g')})`);
    const found = direct ? updateClause(each, index, [notTaken, before]) : lockClause(each, index, before);
    clauses.push(`m${index} as ${found}`);
    before = `(select count(*) from m${index}) >= 0`;
  });
  clauses.push(`bad as materialized (${badUnits(shape)})`);
  if (!direct)
    updates.forEach((each, index) => clauses.push(`u${index} as ${updateClause(each, index, [notBad])}`));
  const additionUnits = additions.map((each, index) => {
    const units = `$${parameter}::text[]`;
    const names = ['unit', ...valueNames(each)];
    const values = valueNames(each).map((name, column) => cast(`g.${name}`, each.casts[column]));
    clauses.push(
      `a${index} as (insert into ${each.table} (${each.columns.join(', ')}) ` +
        `select ${values.join(', ')} from ${given(names, 'g')} where ${isTimed} and ${notBad} order by g.n returning 1)`,
    );
    return units;
  });
  const eventNames = ['unit', ...eventColumnTypes.map((_type, index) => `c${index}`)];
  const eventValues = eventColumnTypes.map((type, index) => `g.c${index}::${type}`).join(', ');
  clauses.push(
    // `early_xid` is false: the action read everything before this statement gave the transaction its xid.
    `e as (insert into eventlog.events (${eventColumns}) select ${eventValues}, false ` +
      `from ${given(eventNames, 'g')} where ${notBad} order by g.n)`,
  );
  return `with ${clauses.join(', ')} select ${results(shape, additionUnits).join(', ')}`;
}

function joinedKeys(shapes: readonly RowShape[]): string {
  return shapes.map(({ key }) => key).join(' ');
}

function keyClauses(given: string): readonly string[] {
  return [
    `kg as materialized (select * from ${given})`,
    'k as (insert into eventlog.idempotency_keys as held ' +
      '(key, principal, namespace, action_id, action_name, fingerprint, result, expires_date, source) ' +
      'select g.key, g.principal, g.namespace, g.action_id::uuid, g.action_name, g.fingerprint, g.result::jsonb, ' +
      `now() + g.lifetime::bigint * interval '1 millisecond', g.source from kg g where ${isTimed} order by 1, 2, 3 ` +
      `${keyConflictClause} returning held.action_id)`,
    'taken as materialized (select unit from kg where action_id::uuid not in (select action_id from k))',
  ];
}

/** A lateral join locks the rows in the given order; with a plain join, the planner would choose the order. */
function lockClause(shape: RowShape, index: number, before: string): string {
  return (
    `materialized (select g.n from g${index} g cross join lateral ` +
    `(select 1 from ${shape.table} t where ${guards(shape).join(' and ')} for update) r where ${before})`
  );
}

function updateClause(shape: RowShape, index: number, conditions: readonly (string | undefined)[]): string {
  const assignments = shape.columns
    .map((column, position) => `${column} = ${cast(`g.c${position}`, shape.casts[position])}`)
    .filter((_assignment, position) => position !== shape.idIndex);
  const where = [...guards(shape), ...conditions.filter((condition) => condition !== undefined)];
  return (
    `(update ${shape.table} t set ${assignments.join(', ')} from g${index} g ` +
    `where ${where.join(' and ')} returning g.n)`
  );
}

function guards({ columns, idIndex, casts, versionColumn }: RowShape): readonly string[] {
  return [
    `t.${columns[idIndex] ?? ''} = ${cast(`g.c${idIndex}`, casts[idIndex])}`,
    `t.${versionColumn} = g.expected::bigint`,
  ];
}

function badUnits({ updates, keyed }: GroupShape): string {
  const missing = updates.map(
    (_shape, index) => `select unit from g${index} where n not in (select n from m${index})`,
  );
  const all = keyed ? [...missing, 'select unit from taken'] : missing;
  return all.length === 0 ? "select '' as unit where false" : all.join(' union all ');
}

function results(
  { updates, keyed, direct }: GroupShape,
  additionUnits: readonly string[],
): readonly string[] {
  const lost = updates.map(
    (_shape, index) =>
      `(select string_agg(n::text, ',') from g${index} where n not in (select n from m${index}))`,
  );
  const taken = keyed ? `(select string_agg(unit, ',') from taken)` : 'null';
  const checks = additionUnits.map(
    (units, index) =>
      `(select count(*) from a${index}) <> ` +
      `(select count(*) from unnest(${units}) as g(unit) where g.unit <> all(array(select unit from bad)))`,
  );
  if (!direct) {
    updates.forEach((_shape, index) =>
      checks.push(
        `(select count(*) from u${index}) <> ` +
          `(select count(*) from g${index} g where g.unit <> all(array(select unit from bad)))`,
      ),
    );
  }
  if (keyed) {
    checks.push(
      'exists (select from kg where unit = any(array(select unit from bad)) ' +
        'and action_id::uuid in (select action_id from k))',
    );
  }
  const check =
    checks.length === 0 ? [] : [`case when ${checks.join(' or ')} then eventlog.raise_stale(0) end`];
  return [...lost, taken, ...check];
}

function valueNames({ columns }: RowShape): readonly string[] {
  return columns.map((_column, index) => `c${index}`);
}

function cast(value: string, type: string | undefined): string {
  return type === undefined || type === 'text' ? value : `${value}::${type}`;
}
