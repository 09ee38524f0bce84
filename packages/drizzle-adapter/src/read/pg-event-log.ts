import { InvalidCursorError, type Page } from '@framework/core';
import { type EventLog, type LoggedEvent, isStorableText, pageSize } from '@framework/core/adapter';
import type pg from 'pg';

/** Sends statements to the shard whose log is read. */
interface Connection {
  query<R extends pg.QueryResultRow>(query: pg.QueryConfig): Promise<pg.QueryResult<R>>;
}

interface EventRow {
  readonly id: string;
  readonly action_id: string;
  readonly action_name: string;
  readonly principal: string;
  readonly ordinal: number;
  readonly model_id: string;
  readonly model_name: string;
  readonly model_version: string;
  readonly event_type: string;
  readonly payload: unknown;
  readonly created_date: Date;
}

/** The log of one shard on PostgreSQL. */
export class PgEventLog implements EventLog {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async findByModel(
    model: { readonly name: string; readonly id: string },
    { limit, after }: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<Page<LoggedEvent>> {
    const size = pageSize(limit);
    const [version, ordinal] = after === undefined ? ['0', '0'] : parseCursor(after);
    // The server refuses a zero byte, and half a surrogate pair would be sent as another character.
    if (!isStorableText(model.id) || !isStorableText(model.name)) return { items: [], next: undefined };
    const { rows } = await this.#connection.query<EventRow>({
      name: 'framework_events_of_model',
      text: `select id, action_id, action_name, principal, ordinal, model_id, model_name, model_version, event_type,
                    payload, created_date
             from eventlog.events
             where model_id = $1 and model_name = $2 and (model_version, ordinal) > ($3::bigint, $4::integer)
             order by model_version, ordinal
             limit $5`,
      values: [model.id, model.name, version, ordinal, size + 1],
    });
    const items = rows.slice(0, size).map(loggedEvent);
    const last = items.at(-1);
    const next =
      rows.length > size && last !== undefined ? `${last.modelVersion}.${last.ordinal}` : undefined;
    return { items, next };
  }
}

function parseCursor(cursor: string): readonly [version: string, ordinal: string] {
  const [, version, ordinal] = /^(\d{1,15})\.(\d{1,9})$/.exec(cursor) ?? [];
  if (version === undefined || ordinal === undefined) throw new InvalidCursorError(cursor);
  return [version, ordinal];
}

function loggedEvent(row: EventRow): LoggedEvent {
  return {
    id: row.id,
    actionId: row.action_id,
    actionName: row.action_name,
    principal: row.principal,
    ordinal: row.ordinal,
    modelId: row.model_id,
    modelName: row.model_name,
    modelVersion: Number(row.model_version),
    type: row.event_type,
    payload: row.payload,
    createdDate: row.created_date,
  };
}
