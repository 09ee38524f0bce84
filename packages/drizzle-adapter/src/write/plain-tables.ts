import { outsideRequests } from '@framework/core/adapter';
import type pg from 'pg';

import { queryOf } from '../connection/storage-error.js';
import type { RowShape } from './row-encoder.js';

/** How long an answer from the catalog is used: a table may be altered. */
const believedMs = 10_000;

const quotedName = `'"' || replace(a.attname, '"', '""') || '"'`;
const ownColumns = 'from pg_attribute a where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped';
const modifierOf = `substring(format_type(a.atttypid, a.atttypmod) from '[(]([^)]*)[)]')`;

/**
 * Whether the written columns of a table have the types that Drizzle declares; and whether the table accepts every encoded row, stores
 * it unchanged, and lets nothing observe its intermediate versions.
 *
 * Parameters: the table and its id column; then, for the written columns as Drizzle declares them, the names, types,
 * type modifiers, whether they refuse null, and the labels of enums.
 */
const tableText = `
  select not exists (
    select from unnest($3::text[], $4::text[]) as d(name, type)
    where not exists (select ${ownColumns} and ${quotedName} = d.name and a.atttypid = to_regtype(d.type))),
    getdatabaseencoding() = 'UTF8' and t.relkind = 'r'
    and not t.relispartition and not t.relrowsecurity
    and not exists (select from pg_inherits h where h.inhparent = t.oid)
    and not exists (select from pg_rewrite r where r.ev_class = t.oid)
    and not exists (select from pg_trigger g where g.tgrelid = t.oid and not g.tgisinternal)
    and not exists (
      select from pg_publication_tables v join pg_publication p on p.pubname = v.pubname
      where p.pubupdate and v.tablename = t.relname
        and v.schemaname = (select n.nspname from pg_namespace n where n.oid = t.relnamespace))
    and not exists (select from pg_constraint c where c.conrelid = t.oid and c.contype not in ('p', 'u', 'n'))
    and not exists (
      select from pg_index i where i.indrelid = t.oid and (
        i.indexprs is not null or i.indpred is not null or i.indisunique and (
          i.indnkeyatts > 1 or i.indkey[0] is distinct from (select a.attnum ${ownColumns} and ${quotedName} = $2))))
    and not exists (select ${ownColumns} and a.attgenerated <> '')
    and not exists (
      select from unnest($3::text[], $4::text[], $5::text[], $6::boolean[], $7::jsonb[])
        as d(name, type, modifier, not_null, labels)
      where not exists (
        select ${ownColumns} and ${quotedName} = d.name and (d.not_null or not a.attnotnull)
          and (${modifierOf} is null or ${modifierOf} = d.modifier)
          and not exists (
            select from jsonb_array_elements_text(d.labels) as l(label) where not exists (
              select from pg_enum e where e.enumtypid = a.atttypid and e.enumlabel = l.label))))
  from pg_class t where t.oid = to_regclass($1)`;

/** Sends a query to the database. */
export type LookUp = (
  query: pg.QueryArrayConfig,
) => Promise<pg.QueryResult<[isTyped: boolean, isPlain: boolean]>>;

/** What the catalog of a database says of a table. */
interface TableFacts {
  readonly isTyped: boolean;
  readonly isPlain: boolean;
  readonly untilMs: number;
}

/**
 * Reads from the catalog of a database which tables have the declared types, so that their rows can be written in groups, and which
 * are plain. A plain table stores each row as it was sent and never refuses it, and nothing observes a version that is overwritten at once.
 *
 * A row of a plain table can be read before it is written, and of successive versions only the last is written.
 */
export class PlainTables {
  readonly #known = new Map<RowShape, TableFacts>();
  readonly #asking = new Set<RowShape>();
  readonly #now: () => number;

  /** @param now a monotonic time in milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Whether the columns of a shape have the types to which a group casts its values; `undefined` when the database must be asked. */
  isTyped(shape: RowShape): boolean | undefined {
    return this.#factsOf(shape)?.isTyped;
  }

  /** Whether the table of a shape is plain; `undefined` when the database must be asked. */
  isPlain(shape: RowShape): boolean | undefined {
    // The shape has values that only the database can compute.
    if (!shape.isWhole) return false;
    return this.#factsOf(shape)?.isPlain;
  }

  /**
   * Whether the table of a shape is known to be plain. Asks the database in the background if that is unknown, or if
   * the answer will soon expire.
   */
  isKnownPlain(shape: RowShape, lookUp: LookUp): boolean {
    const isPlain = this.isPlain(shape);
    if (isPlain === false) return false;
    const knownForMs = (this.#known.get(shape)?.untilMs ?? 0) - this.#now();
    if (knownForMs < believedMs / 2 && !this.#asking.has(shape)) {
      this.#asking.add(shape);
      outsideRequests(() => this.learn([shape], lookUp))
        // Ignored: the statement that needs the database next will report the problem.
        .catch(() => undefined)
        .finally(() => this.#asking.delete(shape));
    }
    return isPlain ?? false;
  }

  #factsOf(shape: RowShape): TableFacts | undefined {
    const known = this.#known.get(shape);
    return known !== undefined && this.#now() < known.untilMs ? known : undefined;
  }

  async learn(shapes: Iterable<RowShape>, lookUp: LookUp): Promise<void> {
    for (const shape of shapes) {
      const untilMs = this.#now() + believedMs;
      const { rows } = await lookUp(queryOf({ text: tableText, rowMode: 'array' }, parametersOf(shape)));
      const [isTyped, isPlain] = rows[0] ?? [false, false];
      this.#known.set(shape, { isTyped, isPlain: isTyped && isPlain, untilMs });
    }
  }
}

function parametersOf({ table, columns, idIndex, casts, declared }: RowShape): unknown[] {
  return [
    table,
    columns[idIndex],
    columns,
    casts,
    declared.map(({ modifier }) => modifier),
    declared.map(({ notNull }) => notNull),
    declared.map(({ labels }) => labels && JSON.stringify(labels)),
  ];
}
