import {
  ConstraintViolationError,
  InvalidCursorError,
  type Page,
  type ShardIdentifier,
} from '@framework/core';
import {
  type DeadLetterGroup,
  type DeliverableEvent,
  type FoundKey,
  type LogFilter,
  type LogOverview,
  type LogSearch,
  type LoggedAction,
  type OperatorChange,
  type OperatorOutcome,
  type OperatorStore,
  type RecordedChange,
  type TrackedEvent,
  pageSize,
} from '@framework/core/adapter';

import type { MemoryAudit, MemoryTables } from '../memory-tables.js';
import type { MemoryAccess } from './memory-access.js';
import { firstLine, matching } from './memory-dead-letters.js';
import {
  type MemoryDeliveryTables,
  formatPlace,
  modelKey,
  parsePlace,
  waits,
} from './memory-delivery-tables.js';

const groupsMax = 100;
const groupCountMax = 10_000;
const examinedMax = 10_000;
const eventsOfActionMax = 1_000;
const keysMax = 100;
/** Events with more bytes of payload and params come without these. */
const listedBytesMax = 65_536;

/** Which page is wanted. */
interface PagePlace {
  readonly limit: number;
  readonly after?: string | undefined;
}

/** An event with its place in the log. */
interface Entry {
  readonly event: DeliverableEvent;
  readonly index: number;
}

/** What operators look for in one database in memory, and the record of what they change there. */
export class MemoryOperatorStore implements OperatorStore {
  readonly #access: MemoryAccess;
  readonly #tables: MemoryTables;
  readonly #shard: ShardIdentifier;

  /**
   * @param access how the process reaches the database
   * @param tables the contents of the same database
   * @param shard one of its shards
   */
  constructor(access: MemoryAccess, tables: MemoryTables, shard: ShardIdentifier) {
    this.#access = access;
    this.#tables = tables;
    this.#shard = shard;
  }

  overview(): Promise<LogOverview> {
    return this.#access.answer('operator.overview', ({ log, nowMs, timeline }) => {
      const newest = log.at(-1)?.createdDate;
      return {
        server: 'memory',
        eventCountEstimate: log.length,
        newestEventDate: newest && new Date(newest),
        databaseBytes: 0,
        now: new Date(nowMs),
        epoch: timeline,
      };
    });
  }

  groupDeadLetters(handler: string | undefined, { limit, after }: PagePlace): Promise<Page<DeadLetterGroup>> {
    return this.#access.answer('operator.groupDeadLetters', (tables) => {
      const size = Math.min(pageSize(limit), groupsMax);
      const start = after === undefined ? undefined : groupPlace(after);
      const dead = matching(tables, { dead: true, ...(handler !== undefined && { handler }) });
      const groups = [
        ...Map.groupBy(dead, ({ row }) => JSON.stringify([row.handler, firstLine(row.error)])).values(),
      ]
        .map((rows): DeadLetterGroup => {
          const [oldest] = rows.toSorted(
            (one, other) => one.row.blockedMs - other.row.blockedMs || compared(one.event.id, other.event.id),
          );
          return {
            handler: oldest?.row.handler ?? '',
            errorLine: firstLine(oldest?.row.error),
            count: Math.min(rows.length, groupCountMax),
            isLowerBound: rows.length > groupCountMax,
            exampleEventId: oldest?.event.id ?? '',
            oldestDate: new Date(oldest?.row.blockedMs ?? 0),
          };
        })
        .filter((group) => start === undefined || byLine(group, start) > 0)
        .sort(byLine);
      return pageOf(groups, size, (group) => JSON.stringify([group.handler, group.errorLine]));
    });
  }

  searchEvents(filter: LogFilter, { limit, after }: PagePlace): Promise<LogSearch> {
    return this.#access.answer('operator.searchEvents', (tables) => {
      const size = pageSize(limit);
      const { modelId, actionId, since, until } = filter;
      const [order, placeOf, parse] = modelId === undefined ? ofLog(tables) : ofModel;
      const start = after === undefined ? undefined : parse(after);
      const behind = entriesOf(tables)
        .filter(({ event }) =>
          modelId === undefined ? isBetween(event.createdDate, since, until) : event.modelId === modelId,
        )
        .filter((entry) => start === undefined || order(entry, start) < 0)
        .sort((one, other) => order(other, one));
      // An action has an index of its own.
      const isByAction = modelId === undefined && actionId !== undefined;
      const examined = isByAction ? behind : behind.slice(0, examinedMax);
      const found = examined.filter(({ event }) => isWanted(event, filter));
      const last = found.length > size ? found[size - 1] : undefined;
      const end = last ?? (examined.length < behind.length ? examined.at(-1) : undefined);
      return {
        items: found.slice(0, size).map((entry) => ({ ...tracked(tables, entry), place: placeOf(entry) })),
        next: end && placeOf(end),
        reachedDate: end && new Date(end.event.createdDate),
      };
    });
  }

  history(modelId: string, { limit, after }: PagePlace): Promise<Page<TrackedEvent>> {
    return this.#access.answer('operator.history', (tables) => {
      const size = pageSize(limit);
      const [order, placeOf, parse] = ofModel;
      const start = after === undefined ? undefined : parse(after);
      const entries = entriesOf(tables)
        .filter(({ event }) => event.modelId === modelId)
        .filter((entry) => start === undefined || order(entry, start) > 0)
        .sort(order);
      const { items, next } = pageOf(entries, size, placeOf);
      return { items: items.map((entry) => tracked(tables, entry)), next };
    });
  }

  findAction(actionId: string): Promise<LoggedAction | undefined> {
    return this.#access.answer('operator.findAction', (tables) => {
      const commit = this.#tables.commits.find(({ action }) => action.id === actionId);
      const entries = entriesOf(tables)
        .filter(({ event }) => event.actionId === actionId)
        .sort((one, other) => one.event.ordinal - other.event.ordinal);
      if (commit === undefined || (commit.events.length > 0 && entries.length === 0)) return undefined;
      const { action, createdDate } = commit;
      return {
        actionId,
        actionName: action.name,
        actionParams: JSON.parse(action.params) as unknown,
        principal: action.principal,
        namespace: action.namespace,
        startedDate: new Date(action.startedDate),
        createdDate: new Date(createdDate),
        events: entries.slice(0, eventsOfActionMax).map((entry) => tracked(tables, entry)),
      };
    });
  }

  findKeys(key: string, principal?: string): Promise<readonly FoundKey[]> {
    return this.#access.answer('operator.findKeys', () =>
      [...this.#tables.keys]
        .map(([scope, stored]): FoundKey => {
          const [namespace, owner, text] = JSON.parse(scope) as readonly [string, string, string];
          const { actionId, actionName, createdMs, expiresMs, handled } = stored;
          const dates = { createdDate: new Date(createdMs), expiresDate: new Date(expiresMs) };
          return {
            key: text,
            principal: owner,
            namespace,
            actionId,
            actionName,
            ...dates,
            source: handled?.source,
          };
        })
        .filter((found) => found.key === key && (principal ?? found.principal) === found.principal)
        .sort(
          (one, other) =>
            compared(one.principal, other.principal) || compared(one.namespace, other.namespace),
        )
        .slice(0, keysMax),
    );
  }

  beginChange({ changeId, operation, actor, reason, target }: OperatorChange): Promise<void> {
    return this.#access.answer('operator.beginChange', ({ nowMs }) => {
      const change = { changeId, operation, actor, reason, target: structuredClone(target) };
      this.#record(changeId, { begun: { ...change, begunDate: new Date(nowMs) } });
    });
  }

  endChange(changeId: string, { outcome, count, errorCode, errorText }: OperatorOutcome): Promise<void> {
    return this.#access.answer('operator.endChange', ({ nowMs }) =>
      this.#record(changeId, { ended: { outcome, count, errorCode, errorText, endedDate: new Date(nowMs) } }),
    );
  }

  #record(changeId: string, phase: MemoryAudit): void {
    const { audit } = this.#tables;
    const known = audit.get(changeId) ?? {};
    if (Object.keys(phase).some((name) => name in known))
      throw new ConstraintViolationError(this.#shard, {
        constraint: 'operator_audit_pkey',
        table: 'operator_audit',
        columns: ['change_id', 'phase'],
        kind: 'unique',
      });
    audit.set(changeId, { ...known, ...phase });
  }

  changes({ limit, after }: PagePlace): Promise<Page<RecordedChange>> {
    return this.#access.answer('operator.changes', () => {
      const size = pageSize(limit);
      const start = after === undefined ? undefined : changePlace(after);
      const changes = [...this.#tables.audit.values()]
        .flatMap(({ begun, ended }) => (begun === undefined ? [] : [structuredClone({ ...begun, ended })]))
        .filter((change) => start === undefined || byDate(change, start) < 0)
        .sort((one, other) => byDate(other, one));
      return pageOf(changes, size, ({ begunDate, changeId }) => `${begunDate.getTime()}/${changeId}`);
    });
  }
}

/** How the events of a search are ordered, the place of one as text, and that text read again. */
type Ordering = readonly [
  order: (one: Entry, other: Entry) => number,
  placeOf: (entry: Entry) => string,
  parse: (text: string) => Entry,
];

/** All events by their places in the log. */
function ofLog(tables: MemoryDeliveryTables): Ordering {
  return [
    (one, other) => one.index - other.index,
    ({ index }) => formatPlace(tables, index),
    (text) => {
      const index = parsePlace(tables, text);
      if (index === undefined) throw new InvalidCursorError(text);
      return { event: {} as DeliverableEvent, index };
    },
  ];
}

/** Those of a model id by version. Models of several classes may have the same id, and so the same versions. */
const ofModel: Ordering = [
  (one, other) =>
    one.event.modelVersion - other.event.modelVersion ||
    one.event.ordinal - other.event.ordinal ||
    one.index - other.index,
  ({ event, index }) => `${event.modelVersion}.${event.ordinal}.${index}`,
  (text) => {
    const [, modelVersion, ordinal, index] = /^(\d{1,15})\.(\d{1,9})\.(\d{1,15})$/.exec(text) ?? [];
    if (index === undefined) throw new InvalidCursorError(text);
    const event = { modelVersion: Number(modelVersion), ordinal: Number(ordinal) } as DeliverableEvent;
    return { event, index: Number(index) };
  },
];

function entriesOf({ log }: MemoryDeliveryTables): readonly Entry[] {
  return log.map((event, index) => ({ event, index }));
}

/** A copy of an event, with what became of it. */
function tracked(tables: MemoryDeliveryTables, { event, index }: Entry): TrackedEvent {
  const { payload, actionParams, ...rest } = event;
  const bytes = bytesOf(payload) + bytesOf(actionParams);
  const isLarge = bytes > listedBytesMax;
  return {
    event: structuredClone(
      isLarge ? { ...rest, payload: undefined, actionParams: undefined, omitted: true, bytes } : event,
    ),
    deliveries: [...tables.handlers.keys()].sort(compared).map((handler) => {
      const row = tables.blocked.get(modelKey(handler, event));
      if (row?.dead === true && row.event?.id === event.id) return { handler, state: 'dead-letter' };
      if (waits(tables, handler, event)) return { handler, state: 'blocked' };
      return { handler, state: index < tables.cursor(handler, event.slot) ? 'passed' : 'pending' };
    }),
  };
}

function isWanted(
  { actionId, actionName, type, principal, createdDate }: DeliverableEvent,
  filter: LogFilter,
): boolean {
  return (
    (filter.actionId ?? actionId) === actionId &&
    (filter.action ?? actionName) === actionName &&
    (filter.type ?? type) === type &&
    (filter.principal ?? principal) === principal &&
    isBetween(createdDate, filter.since, filter.until)
  );
}

function isBetween(date: Date, since: Date | undefined, until: Date | undefined): boolean {
  return (since === undefined || date >= since) && (until === undefined || date < until);
}

function pageOf<Item>(behind: readonly Item[], size: number, placeOf: (item: Item) => string): Page<Item> {
  const items = behind.slice(0, size);
  const last = behind.length > size ? items.at(-1) : undefined;
  return { items, next: last && placeOf(last) };
}

type GroupPlace = Pick<DeadLetterGroup, 'handler' | 'errorLine'>;

function byLine(one: GroupPlace, other: GroupPlace): number {
  return compared(one.handler, other.handler) || compared(one.errorLine, other.errorLine);
}

function groupPlace(text: string): GroupPlace {
  const [, ...texts] = /^\[("(?:[^"\\]|\\.)+"),("(?:[^"\\]|\\.)*")\]$/.exec(text) ?? [];
  const [handler, errorLine] = texts.map((each) => parsedText(each));
  if (handler === undefined || errorLine === undefined) throw new InvalidCursorError(text);
  return { handler, errorLine };
}

function parsedText(json: string): string | undefined {
  try {
    return JSON.parse(json) as string;
  } catch {
    return undefined;
  }
}

type ChangePlace = Pick<RecordedChange, 'begunDate' | 'changeId'>;

function byDate(one: ChangePlace, other: ChangePlace): number {
  return one.begunDate.getTime() - other.begunDate.getTime() || compared(one.changeId, other.changeId);
}

function changePlace(text: string): ChangePlace {
  const [, ms, changeId] = /^(\d{1,15})\/([0-9a-f-]{36})$/.exec(text) ?? [];
  if (changeId === undefined) throw new InvalidCursorError(text);
  return { begunDate: new Date(Number(ms)), changeId };
}

function compared(one: string, other: string): number {
  return one === other ? 0 : one < other ? -1 : 1;
}

function bytesOf(value: unknown): number {
  return value === undefined ? 0 : Buffer.byteLength(JSON.stringify(value));
}
