import { InvariantViolationError, StaleRecordError } from '@framework/core';
import type { ChangeSet, GroupOutcome } from '@framework/core/adapter';
import type pg from 'pg';

import { queryOf } from '../connection/storage-error.js';
import { loggedEvents } from './change-set-writer.js';
import { type GroupRow, type GroupRows, groupRows, textArray } from './group-rows.js';
import { type GroupShape, groupShapeKey, groupStatement } from './group-statement.js';
import type { LookUp, PlainTables } from './plain-tables.js';
import type { RowShape } from './row-encoder.js';
import { actionValues, eventRowValues, keyParameterCount, keyValues } from './write-statement.js';

/** How many statements are kept prepared. Statements of further shapes are sent unprepared. */
const preparedMax = 100;

/** A group that is ready to be sent. */
export interface PreparedGroup {
  readonly query: pg.QueryArrayConfig;
  /** The id of each change set's first row in the log; `undefined` for those that are written alone. */
  readonly eventIds: readonly (string | undefined)[];
  /** Translates the statement's result into the outcome of each change set. */
  readonly outcomes: (result: readonly (string | null)[]) => readonly GroupOutcome[];
}

/**
 * Writes the change sets of many actions with one prepared statement, whose text does not depend on how many there are.
 */
export class GroupWriter {
  readonly #statements = new Map<string, pg.QueryArrayConfig>();
  readonly #plainTables: PlainTables;

  constructor(plainTables: PlainTables) {
    this.#plainTables = plainTables;
  }

  /**
   * Does all the work before a group is sent. Returns `undefined` when every change set must be written alone.
   *
   * @param lookUp asks the database for the types of columns, and whether a row that several plans change may be written only once
   * @throws what the look-up throws
   */
  async prepare(group: readonly ChangeSet[], lookUp: LookUp): Promise<PreparedGroup | undefined> {
    const unknown = new Set<RowShape>();
    let laid = this.#lay(group, unknown);
    if (unknown.size > 0) {
      await this.#plainTables.learn(unknown, lookUp);
      laid = this.#lay(group, unknown);
    }
    return this.#prepare(group, laid);
  }

  /** Combines rows as far as that is known to be safe, and collects the shapes for which it is not known. */
  #lay(group: readonly ChangeSet[], unknown: Set<RowShape>): GroupRows {
    const known = (shape: RowShape, answer: boolean | undefined): boolean => {
      if (answer === undefined) unknown.add(shape);
      return answer ?? false;
    };
    return groupRows(group, {
      isRefused: (shape) => !known(shape, this.#plainTables.isTyped(shape)),
      isMerged: (shape) => known(shape, this.#plainTables.isPlain(shape)),
    });
  }

  #prepare(group: readonly ChangeSet[], { rows, units }: GroupRows): PreparedGroup | undefined {
    if (units.every((unit) => unit === undefined)) return undefined;
    const updates = byShape(rows, 'update');
    const additions = byShape(rows, 'add');
    const keyed = group.some(({ key }, plan) => key !== undefined && units[plan] !== undefined);
    const shape: GroupShape = {
      updates: updates.map(([first]) => shapeOf(first)),
      additions: additions.map(([first]) => shapeOf(first)),
      keyed,
      direct: isDirect(updates, units),
    };
    const eventIds: (string | undefined)[] = [];
    const values = [
      ...(keyed ? keyArrays(group, units) : []),
      ...updates.flatMap((each) => rowArrays(each, units, true)),
      ...additions.flatMap((each) => rowArrays(each, units, false)),
      ...eventArrays(group, units, eventIds),
    ];
    return {
      query: queryOf(this.#statement(shape), values.map(textArray)),
      eventIds,
      outcomes: (result) => outcomesOf(result, updates, group, units),
    };
  }

  #statement(shape: GroupShape): pg.QueryArrayConfig {
    const key = groupShapeKey(shape);
    const known = this.#statements.get(key);
    if (known !== undefined) return known;
    const text = groupStatement(shape);
    if (this.#statements.size >= preparedMax) return { text, rowMode: 'array' };
    const name = `framework_group_${this.#statements.size}`;
    const statement = { name, text, rowMode: 'array' } as const;
    this.#statements.set(key, statement);
    return statement;
  }
}

type Units = readonly (number | undefined)[];
type Texts = (string | null)[];

/** The rows of one kind, as one list per shape, ordered by table; each list is ordered by id. */
function byShape(rows: readonly GroupRow[], kind: GroupRow['kind']): readonly (readonly GroupRow[])[] {
  const own = rows.filter((row) => row.kind === kind).sort(byTableAndId);
  return [...Map.groupBy(own, ({ shape }) => shape).values()];
}

function byTableAndId(one: GroupRow, other: GroupRow): number {
  const { table } = one.shape;
  if (table !== other.shape.table) return table < other.shape.table ? -1 : 1;
  return one.id < other.id ? -1 : 1;
}

/** Whether each unit has at most one guarded row. */
function isDirect(updates: readonly (readonly GroupRow[])[], units: Units): boolean {
  const seen = new Set<number | undefined>();
  for (const { plan } of updates.flat()) {
    if (seen.has(units[plan])) return false;
    seen.add(units[plan]);
  }
  return true;
}

function rowArrays(rows: readonly GroupRow[], units: Units, guarded: boolean): Texts[] {
  const columns = shapeOf(rows[0]).columns.map((_column, index) =>
    rows.map(({ values }) => textOf(values[index])),
  );
  const unit = rows.map(({ plan }) => textOf(units[plan]));
  return guarded
    ? [unit, rows.map(({ expectedVersion }) => textOf(expectedVersion)), ...columns]
    : [unit, ...columns];
}

function keyArrays(group: readonly ChangeSet[], units: Units): Texts[] {
  const arrays: Texts[] = Array.from({ length: 1 + keyParameterCount }, () => []);
  group.forEach(({ action, key }, plan) => {
    if (key === undefined || units[plan] === undefined) return;
    [units[plan], ...keyValues(action, key)].forEach((value, index) => arrays[index]?.push(textOf(value)));
  });
  return arrays;
}

function eventArrays(group: readonly ChangeSet[], units: Units, eventIds: (string | undefined)[]): Texts[] {
  const arrays: Texts[] = Array.from({ length: 16 }, () => []);
  group.forEach((changes, plan) => {
    const unit = units[plan];
    const events = unit === undefined ? [] : loggedEvents(changes);
    eventIds.push(events[0]?.id);
    if (unit === undefined) return;
    const action = actionValues(changes.action);
    for (const event of events) {
      let index = 0;
      arrays[index++]?.push(String(unit));
      for (const value of action) arrays[index++]?.push(value);
      for (const value of eventRowValues(event)) arrays[index++]?.push(textOf(value));
    }
  });
  return arrays;
}

function outcomesOf(
  result: readonly (string | null)[],
  updates: readonly (readonly GroupRow[])[],
  group: readonly ChangeSet[],
  units: Units,
): readonly GroupOutcome[] {
  const stale = new Map<number, GroupRow>();
  const bad = new Set<number | undefined>();
  updates.forEach((rows, index) => {
    for (const number of numbers(result[index])) {
      const row = rows[number - 1];
      if (row === undefined)
        throw new InvariantViolationError(`The database reported row ${number}, which was not sent`);
      bad.add(units[row.plan]);
      stale.set(row.plan, row);
    }
  });
  const taken = new Set(numbers(result[updates.length]));
  for (const unit of taken) bad.add(unit);
  return group.map(({ key }, plan) => {
    const unit = units[plan];
    if (unit === undefined) return 'single';
    if (!bad.has(unit)) return 'written';
    // In a unit of several plans, only writing each alone shows whose key is taken and which plan is stale.
    if (taken.has(unit)) return key !== undefined && isAloneInUnit(unit, units) ? 'key-taken' : 'single';
    const row = stale.get(plan);
    return row === undefined ? 'single' : StaleRecordError.of(row.change);
  });
}

function isAloneInUnit(unit: number, units: Units): boolean {
  return units.indexOf(unit) === units.lastIndexOf(unit);
}

function numbers(joined: string | null | undefined): readonly number[] {
  return joined === null || joined === undefined ? [] : joined.split(',').map(Number);
}

function shapeOf(row: GroupRow | undefined): RowShape {
  if (row === undefined) throw new InvariantViolationError('A list of rows is empty');
  return row.shape;
}

/** The text of a plain value: see {@link groupRows}. */
function textOf(value: unknown): string | null {
  if (typeof value === 'string') return value;
  return value === null || value === undefined ? null : `${value as number | bigint | boolean}`;
}
