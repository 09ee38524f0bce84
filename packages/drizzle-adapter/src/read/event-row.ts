import type { DeliverableEvent } from '@framework/core/adapter';
import pg from 'pg';

/** Separates the packed columns. None of their texts can contain it. */
const separator = '\x1f';

const packedColumns = (payload: string, params: string, headers: string): string =>
  `concat_ws(E'\\x1f', e.id, e.ordinal, e.action_id, e.namespace, e.started_date, e.created_date, ` +
  `coalesce(${payload}, 'null'), ${params}, ${headers})`;

/** Leaves out headers that are large themselves, along with payload and params. */
const headersUpTo = (bytesMax: string): string =>
  `case when octet_length(e.headers::text) <= ${bytesMax} then e.headers else '{}' end`;

const columns =
  'xid position slot model_version model_id model_name event_type action_name principal early_xid'.split(' ');

/**
 * A `select` of events from the log, whose rows are {@link EventTexts}.
 *
 * Columns that most handlers never look at arrive packed into one text, followed by the size in bytes including payload
 * and params. For a backlog, that is faster than reading each value. The text is built in an inner `select`, so that it
 * is built only once.
 *
 * @param bytesMax an SQL expression: events larger than this come without payload and params, and also without headers if those
 * alone are larger
 * @param from the part after `from`, with the events as `e`
 */
export const selectEvents = (bytesMax: string, from: string): string => `
  select ${columns.map((column) => `e.${column}::text`).join(', ')},
    case when octet_length(e.packed) <= ${bytesMax} then e.packed
      else ${packedColumns(`'null'`, `'null'`, headersUpTo(bytesMax))} end,
    octet_length(e.packed)::text
  from (select e.*, ${packedColumns('e.payload', 'e.action_params', 'e.headers')} as packed from ${from}) e`;

/**
 * An event of the log as JSON, with the field names of `DeliverableEvent`.
 *
 * @param contents the names and values of further fields
 */
export const eventWith = (contents: string): string => `jsonb_build_object(
  'id', e.id, 'slot', e.slot, 'namespace', e.namespace, 'actionId', e.action_id, 'actionName', e.action_name,
  'principal', e.principal, 'headers', e.headers, 'ordinal', e.ordinal,
  'modelId', e.model_id, 'modelName', e.model_name, 'modelVersion', e.model_version, 'type', e.event_type,
  'startedDate', e.started_date, 'createdDate', e.created_date, ${contents})`;

/** {@link eventWith} payload and params. */
export const wholeEvent: string = eventWith(`'payload', e.payload, 'actionParams', e.action_params`);

/** Whether a text can be an event's id. PostgreSQL would refuse to compare any other text with one. */
export function isEventId(text: string): boolean {
  return /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(text);
}

/**
 * A `select` of one row that can be combined with {@link selectEvents} by `union all`: a text in the last column,
 * null in all others.
 */
export const selectText = (text: string): string =>
  `select ${Array(columns.length + 1)
    .fill('null::text')
    .join(', ')}, ${text}`;

/** A row of {@link selectEvents}, as the server sends it. */
export type EventTexts = readonly (string | null)[];

/** The columns of a row of the log, as the texts of its values; null where the row has none. */
export type LogRow = Readonly<Record<string, string | null>>;

/**
 * The texts that {@link selectEvents} would return for a row of which all columns are known.
 *
 * @param bytesMax larger events come without payload and params, and without headers that are larger by themselves
 * @returns also how many bytes the texts have
 */
export function textsOf(
  row: LogRow,
  bytesMax: number,
): { readonly texts: EventTexts; readonly heldBytes: number } {
  const { id, ordinal, action_id, namespace, started_date, created_date, headers } = row;
  const pack = (...parts: readonly (string | null | undefined)[]): string =>
    [id, ordinal, action_id, namespace, started_date, created_date, ...parts].join(separator);
  const whole = pack(row['payload'] ?? 'null', row['action_params'], headers);
  const bytes = Buffer.byteLength(whole);
  const isLarge = bytes > bytesMax;
  const kept = isLarge && Buffer.byteLength(headers ?? '') > bytesMax ? '{}' : headers;
  const packed = isLarge ? pack('null', 'null', kept) : whole;
  const texts = columns.map((column) =>
    column === 'early_xid' ? String(row[column] === 't') : (row[column] ?? null),
  );
  return { texts: [...texts, packed, String(bytes)], heldBytes: isLarge ? Buffer.byteLength(packed) : bytes };
}

/** No event is larger than this. */
export const bytesLimit = 2 ** 31 - 1;

const namesMax = 1_000;

/** A function that returns one shared string for equal names. It remembers few, because there may be many principals. */
export function interned(): (name: string) => string {
  const names = new Map<string, string>();
  return (name) => {
    const known = names.get(name);
    if (known !== undefined) return known;
    if (names.size >= namesMax) names.clear();
    names.set(name, name);
    return name;
  };
}

/** Keeps every column as the text that the server sends. */
export const eventTexts: Pick<pg.QueryArrayConfig, 'rowMode' | 'types'> = {
  rowMode: 'array',
  types: { getTypeParser: () => (text: string) => text },
};

/** An event of the log, with its place in it. */
export interface LogEvent extends DeliverableEvent {
  /**
   * The transaction that wrote it. A number is exact up to 2^53, which takes 280 years at a million transactions a
   * second.
   */
  readonly xid: number;
  /** Its position in the log; a later version of a model has a higher one. */
  readonly position: number;
}

const parseDate: (text: string) => Date = pg.types.getTypeParser(pg.types.builtins.TIMESTAMPTZ);

/** An event of the log. Expensive fields are decoded when they are first read. */
export class EventRow implements LogEvent {
  readonly xid: number;
  readonly position: number;
  readonly slot: number;
  readonly modelVersion: number;
  readonly modelId: string;
  readonly modelName: string;
  readonly type: string;
  readonly actionName: string;
  readonly principal: string;
  /** Whether its transaction may have received its xid before it read the model. */
  readonly earlyXid: boolean;
  /** Its approximate size in bytes, with payload and params. */
  readonly bytes: number;
  /** Whether payload and params were left out because the event is large. */
  readonly omitted: boolean;
  #packed: string | readonly string[];

  /** @param intern returns one shared string for equal texts: names repeat, and a backlog has many */
  constructor(texts: EventTexts, intern: (text: string) => string, bytesMax = Infinity) {
    this.xid = Number(texts[0]);
    this.position = Number(texts[1]);
    this.slot = Number(texts[2]);
    this.modelVersion = Number(texts[3]);
    this.modelId = texts[4] ?? '';
    this.modelName = intern(texts[5] ?? '');
    this.type = intern(texts[6] ?? '');
    this.actionName = intern(texts[7] ?? '');
    this.principal = intern(texts[8] ?? '');
    this.earlyXid = texts[9] === 'true';
    this.#packed = texts[10] ?? '';
    this.bytes = Number(texts[11]);
    this.omitted = this.bytes > bytesMax;
  }

  get id(): string {
    return this.#unpacked(0);
  }

  get ordinal(): number {
    return Number(this.#unpacked(1));
  }

  get actionId(): string {
    return this.#unpacked(2);
  }

  get namespace(): string {
    return this.#unpacked(3);
  }

  get startedDate(): Date {
    return parseDate(this.#unpacked(4));
  }

  get createdDate(): Date {
    return parseDate(this.#unpacked(5));
  }

  get payload(): unknown {
    return JSON.parse(this.#unpacked(6));
  }

  get actionParams(): unknown {
    return JSON.parse(this.#unpacked(7));
  }

  get headers(): Readonly<Record<string, string>> {
    return JSON.parse(this.#unpacked(8)) as Readonly<Record<string, string>>;
  }

  /** All its fields, for a log entry. */
  toJSON(): DeliverableEvent {
    const { id, slot, namespace, actionId, actionName, actionParams, principal, ordinal, omitted } = this;
    const { modelId, modelName, modelVersion, type, payload, headers, startedDate, createdDate } = this;
    const action = { namespace, actionId, actionName, actionParams, principal, headers };
    const model = { modelId, modelName, modelVersion };
    const event = { id, slot, ...action, ordinal, ...model, type, payload, startedDate, createdDate };
    return omitted ? { ...event, payload: undefined, actionParams: undefined, omitted } : event;
  }

  #unpacked(place: number): string {
    if (typeof this.#packed === 'string') this.#packed = this.#packed.split(separator);
    return this.#packed[place] ?? '';
  }
}

/**
 * The order of the log, for sorting. For each model it is the order of versions, because a change is written only after
 * the previous one has been committed.
 */
export function byPosition(one: LogEvent, other: LogEvent): number {
  return one.position - other.position;
}

/** Decodes events from rows of the log of which all columns are known, as a replication stream has them. */
export class EventDecoder {
  readonly #bytesMax: number;
  readonly #intern = interned();

  /** @param bytesMax larger events come without payload and params, and without headers that are larger by themselves */
  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Decodes one row; returns also how many bytes the event keeps in memory. */
  decode(row: LogRow): { readonly event: LogEvent; readonly heldBytes: number } {
    const { texts, heldBytes } = textsOf(row, this.#bytesMax);
    return { event: new EventRow(texts, this.#intern, this.#bytesMax), heldBytes };
  }
}

/** Restores an event from {@link wholeEvent}. */
export function eventFromJson(json: unknown): DeliverableEvent {
  const event = json as DeliverableEvent;
  return { ...event, startedDate: new Date(event.startedDate), createdDate: new Date(event.createdDate) };
}
