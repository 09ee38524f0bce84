import { InvalidCursorError, InvariantViolationError, type Page } from '@framework/core';
import {
  type DeadLetterGroup,
  type FoundKey,
  type LogFilter,
  type LogOverview,
  type LogSearch,
  type LoggedAction,
  type OperatorChange,
  type OperatorOutcome,
  type OperatorStore,
  type RecordedChange,
  type StepPlace,
  type TrackedEvent,
  isStorableText,
  pageSize,
} from '@framework/core/adapter';

import type { PgTransactionManager } from '../pg-transaction-manager.js';
import { isEventId } from '../read/event-row.js';
import {
  type TrackedRow,
  modelOrder,
  modelPlace,
  modelPlaceOf,
  searchLog,
  trackedColumns,
  trackedColumnsAt,
  trackedEvent,
} from './log-search.js';
import { cursorTexts, errorLine } from './pg-dead-letters.js';

const groupsMax = 100;
/** How many dead letters of a group are counted. */
const groupCountMax = 10_000;
const eventsOfActionMax = 1_000;
const keysMax = 100;

/** Each group costs one index lookup after the previous one. */
const groupsText = `
  with recursive groups (handler, line, number) as (
    (select handler, ${errorLine}, 1 from eventlog.blocked_models
     where dead and ($1::text is null or handler = $1) and (handler, ${errorLine}) > ($2::text, $3::text)
     order by handler, ${errorLine} limit 1)
    union all
    select next.handler, next.line, g.number + 1 from groups g cross join lateral (
      select handler, ${errorLine} as line from eventlog.blocked_models
      where dead and ($1::text is null or handler = $1) and (handler, ${errorLine}) > (g.handler, g.line)
      order by handler, ${errorLine} limit 1) next
    where g.number <= $4
  )
  select g.handler, g.line as "errorLine", least(counted.count, ${groupCountMax})::integer as count,
    counted.count > ${groupCountMax} as "isLowerBound", first.event_id as "exampleEventId", first.blocked_date as "oldestDate"
  from groups g
  cross join lateral (
    select count(*) from (
      select from eventlog.blocked_models where dead and handler = g.handler and ${errorLine} = g.line
      order by blocked_date, event_id limit ${groupCountMax + 1}) each) counted
  cross join lateral (
    select event_id, blocked_date from eventlog.blocked_models where dead and handler = g.handler and ${errorLine} = g.line
    order by blocked_date, event_id limit 1) first
  where g.number <= $4 + 1
  order by g.number`;

/** The newest event is that of the newest transaction; partitions that were never analysed have -1 rows. */
const overviewText = `
  select 'PostgreSQL ' || current_setting('server_version') as server,
    coalesce((select sum(greatest(c.reltuples, 0)) from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'eventlog.events'::regclass), 0)::double precision as "eventCountEstimate",
    (select e.created_date from eventlog.events e where e.event_type is not null
     order by e.epoch desc, e.xid desc, e.position desc limit 1) as "newestEventDate",
    pg_database_size(current_database())::double precision as "databaseBytes", clock_timestamp() as now,
    (select max(epoch) from eventlog.epochs)::integer as epoch`;

type OverviewRow = Omit<LogOverview, 'newestEventDate'> & { readonly newestEventDate: Date | null };

type ActionRow = TrackedRow & Omit<LoggedAction, 'events'> & { readonly type: string | null };

interface ChangeRow extends Omit<RecordedChange, 'ended'> {
  readonly endedDate: Date | null;
  readonly outcome: OperatorOutcome['outcome'] | null;
  readonly count: number | null;
  readonly errorCode: string | null;
  readonly errorText: string | null;
  readonly cursor: string;
}

/** What operators look for in one PostgreSQL database, and the record of what they change there. */
export class PgOperatorStore implements OperatorStore {
  readonly #manager: PgTransactionManager;

  constructor(manager: PgTransactionManager) {
    this.#manager = manager;
  }

  async overview(): Promise<LogOverview> {
    const { rows } = await this.#manager.query<OverviewRow>({ text: overviewText, values: [] });
    const [row] = rows;
    if (row === undefined) throw new InvariantViolationError('A query without a table has no row');
    return { ...row, newestEventDate: row.newestEventDate ?? undefined };
  }

  async groupDeadLetters(
    handler: string | undefined,
    { limit, after }: StepPlace,
  ): Promise<Page<DeadLetterGroup>> {
    const size = Math.min(pageSize(limit), groupsMax);
    const [name, line] = after === undefined ? ['', ''] : groupCursor(after);
    if (handler !== undefined && !isStorableText(handler)) return { items: [], next: undefined };
    const { rows } = await this.#manager.query<DeadLetterGroup>({
      text: groupsText,
      values: [handler ?? null, name, line, size],
    });
    const items = rows.slice(0, size);
    const last = rows.length > size ? items.at(-1) : undefined;
    return { items, next: last && JSON.stringify([last.handler, last.errorLine]) };
  }

  searchEvents(filter: LogFilter, page: StepPlace): Promise<LogSearch> {
    return searchLog(this.#manager, filter, page);
  }

  /** Two models may have the same id, and a damaged log a version twice, so the place in the log decides between equals. */
  async history(modelId: string, { limit, after }: StepPlace): Promise<Page<TrackedEvent>> {
    const size = pageSize(limit);
    const start = modelPlaceOf(after ?? '0.0.0');
    if (!isStorableText(modelId)) return { items: [], next: undefined };
    const { rows } = await this.#manager.query<TrackedRow>({
      text: `select ${trackedColumnsAt(modelPlace)} from eventlog.events e
        where e.model_id = $1 and e.event_type is not null and ${modelOrder} > ($2::bigint, $3::integer, $4::bigint)
        order by e.model_version, e.ordinal, e.position limit $5`,
      values: [modelId, ...start, size + 1],
    });
    const items = rows.slice(0, size).map(trackedEvent);
    return { items, next: rows.length > size ? rows[size - 1]?.place : undefined };
  }

  async findAction(actionId: string): Promise<LoggedAction | undefined> {
    if (!isEventId(actionId)) return undefined;
    const { rows } = await this.#manager.query<ActionRow>({
      text: `select ${trackedColumns}, e.event_type as type, e.action_id as "actionId", e.action_name as "actionName",
          e.action_params as "actionParams", e.principal, e.namespace, e.started_date as "startedDate", e.created_date as "createdDate"
        from eventlog.events e where e.action_id = $1 order by e.ordinal limit ${eventsOfActionMax}`,
      values: [actionId],
    });
    const [first] = rows;
    if (first === undefined) return undefined;
    const { event: _event, place: _place, deliveries: _deliveries, type: _type, ...action } = first;
    return { ...action, events: rows.filter(({ type }) => type !== null).map(trackedEvent) };
  }

  async findKeys(key: string, principal?: string): Promise<readonly FoundKey[]> {
    if (!isStorableText(key) || (principal !== undefined && !isStorableText(principal))) return [];
    const { rows } = await this.#manager.query<Omit<FoundKey, 'source'> & { readonly source: string | null }>(
      {
        text: `select key, principal, namespace, action_id as "actionId", action_name as "actionName",
          created_date as "createdDate", expires_date as "expiresDate", source
        from eventlog.idempotency_keys where key = $1 and ($2::text is null or principal = $2)
        order by key, principal, namespace limit ${keysMax}`,
        values: [key, principal ?? null],
      },
    );
    return rows.map((row) => ({ ...row, source: row.source ?? undefined }));
  }

  async beginChange({ changeId, operation, actor, reason, target }: OperatorChange): Promise<void> {
    await this.#manager.query({
      text: `insert into eventlog.operator_audit (change_id, phase, operation, actor, reason, target)
             values ($1, 'begun', $2, $3, $4, $5)`,
      values: [changeId, operation, actor, reason, JSON.stringify(target)],
    });
  }

  async endChange(
    changeId: string,
    { outcome, count, errorCode, errorText }: OperatorOutcome,
  ): Promise<void> {
    await this.#manager.query({
      text: `insert into eventlog.operator_audit (change_id, phase, outcome, count, error_code, reason)
             values ($1, 'ended', $2, $3, $4, $5)`,
      values: [changeId, outcome, count, errorCode ?? null, errorText ?? null],
    });
  }

  async changes({ limit, after }: StepPlace): Promise<Page<RecordedChange>> {
    const size = pageSize(limit);
    const [, seconds, id] = /^(\d{1,12}\.\d{6})\/(.{36})$/.exec(after ?? '') ?? [];
    if (after !== undefined && (id === undefined || !isEventId(id))) throw new InvalidCursorError(after);
    const { rows } = await this.#manager.query<ChangeRow>({
      text: `select b.change_id as "changeId", b.recorded_date as "begunDate", b.operation, b.actor, b.reason, b.target,
          d.recorded_date as "endedDate", d.outcome, d.count::double precision as count, d.error_code as "errorCode",
          d.reason as "errorText",
          concat(extract(epoch from b.recorded_date), '/', b.change_id) as cursor
        from eventlog.operator_audit b
        left join eventlog.operator_audit d on d.change_id = b.change_id and d.phase = 'ended'
        where b.phase = 'begun'
          and ($1::numeric is null or (b.recorded_date, b.change_id) < (to_timestamp($1::numeric), $2::uuid))
        order by b.recorded_date desc, b.change_id desc limit $3`,
      values: [seconds ?? null, id ?? null, size + 1],
    });
    const page = rows.slice(0, size);
    return { items: page.map(recordedChange), next: rows.length > size ? page.at(-1)?.cursor : undefined };
  }
}

function recordedChange(row: ChangeRow): RecordedChange {
  const { cursor: _cursor, endedDate, outcome, count, errorCode, errorText, ...begun } = row;
  const hasEnded = endedDate !== null && outcome !== null;
  const ended = hasEnded
    ? {
        endedDate,
        outcome,
        count: count ?? 0,
        errorCode: errorCode ?? undefined,
        errorText: errorText ?? undefined,
      }
    : undefined;
  return { ...begun, ended };
}

function groupCursor(cursor: string): readonly [handler: string, line: string] {
  const [handler = '', line = ''] = cursorTexts(cursor, 2);
  if (handler === '') throw new InvalidCursorError(cursor);
  return [handler, line];
}
