import type { DeliverableEvent } from './event-log.js';
import type { Page } from './repository.js';

/** What became of an event for one handler. */
export interface EventDelivery {
  /** The handler's permanent id. */
  readonly handler: string;
  /**
   * `passed`: handled, skipped or not wanted; `pending`: not reached yet; `blocked`: waits for a retry or for an earlier event of its
   * model; `dead-letter`: waits for an operator.
   */
  readonly state: 'passed' | 'pending' | 'blocked' | 'dead-letter';
}

/** An event of the log, with what became of it. */
export interface TrackedEvent {
  /** Without payload and params, and `omitted`, if these have more than 65,536 bytes. */
  readonly event: DeliverableEvent;
  /** One for each registered handler. */
  readonly deliveries: readonly EventDelivery[];
}

/** Which events of a log an operator looks for; every given field must match. */
export interface LogFilter {
  readonly modelId?: string;
  /** The action's id. */
  readonly actionId?: string;
  /** The name of the action's class. */
  readonly action?: string;
  /** The name of the event's class. */
  readonly type?: string;
  readonly principal?: string;
  /** Not created before this time, by the database's clock. */
  readonly since?: Date;
  /** Created before this time. */
  readonly until?: Date;
}

/** The part of a log that one search has read. */
export interface LogSearch {
  /** The newest first, each with the place from which a search continues behind it. */
  readonly items: readonly (TrackedEvent & { readonly place: string })[];
  /** Where the search continues; `undefined` at its end. There may be more even if there are no items. */
  readonly next: string | undefined;
  /** Everything that was created after this time has been searched; `undefined` at the end. */
  readonly reachedDate: Date | undefined;
}

/** What a database is and has, as far as estimates and indexes tell at once. */
export interface LogOverview {
  /** Such as `PostgreSQL 17.2`. */
  readonly server: string;
  /** How many events the log has, by the planner's estimate. */
  readonly eventCountEstimate: number;
  /** When the newest event was created, by the database's clock; `undefined` for an empty log. */
  readonly newestEventDate: Date | undefined;
  /** How many bytes the whole database takes on disk. */
  readonly databaseBytes: number;
  /** The database's clock. */
  readonly now: Date;
  /** In which epoch the database writes. */
  readonly epoch: number;
}

/** What an action has left in one log. */
export interface LoggedAction {
  readonly actionId: string;
  readonly actionName: string;
  readonly actionParams: unknown;
  readonly principal: string;
  readonly namespace: string;
  /** When it began, by the clock of its process. */
  readonly startedDate: Date;
  readonly createdDate: Date;
  /** At most 1,000. Empty when it changed something without an event. */
  readonly events: readonly TrackedEvent[];
}

/** A request that was committed under an idempotency key. */
export interface FoundKey {
  readonly key: string;
  readonly principal: string;
  readonly namespace: string;
  readonly actionId: string;
  readonly actionName: string;
  readonly createdDate: Date;
  readonly expiresDate: Date;
  /** The event for which a handler executed the action; `undefined` for a client's key. */
  readonly source: string | undefined;
}

/** Dead letters of one handler whose errors begin with the same line. */
export interface DeadLetterGroup {
  /** The handler's permanent id. */
  readonly handler: string;
  /** The first line of the error, cut off after 200 characters. */
  readonly errorLine: string;
  /** How many there are; if `isLowerBound`, there are at least as many. */
  readonly count: number;
  readonly isLowerBound: boolean;
  /** The one that has been blocked longest. */
  readonly exampleEventId: string;
  readonly oldestDate: Date;
}

/** A change that an operator makes. */
export interface OperatorChange {
  /** A UUID, the same in every database that the change concerns. */
  readonly changeId: string;
  /** Such as `replay`. */
  readonly operation: string;
  /** Who makes it: 1 to 255 characters. */
  readonly actor: string;
  /** Why: 1 to 1,000 characters. */
  readonly reason: string;
  /** What is changed, as JSON values. */
  readonly target: Readonly<Record<string, unknown>>;
}

/** How a change ended in one database. */
export interface OperatorOutcome {
  readonly outcome: 'done' | 'failed';
  /** How many events were changed; 0 if the change was not about events. */
  readonly count: number;
  /** The code of the error that ended it. */
  readonly errorCode?: string | undefined;
  /** What was wrong, in words for operators. */
  readonly errorText?: string | undefined;
}

/** A recorded change of an operator. */
export interface RecordedChange extends OperatorChange {
  readonly begunDate: Date;
  /** `undefined` while it goes on, and for ever if its process died. */
  readonly ended: (OperatorOutcome & { readonly endedDate: Date }) | undefined;
}

/**
 * Port: what operators look for in one database, and the record of what they change there.
 *
 * Every answer comes from an index and reads a limited number of rows, however much is blocked and however long the log is.
 */
export interface OperatorStore {
  /** What the database is and has, without counting. */
  overview(): Promise<LogOverview>;
  /**
   * Dead letters by handler and first line of the error, ordered by these; each group is counted up to 10,000.
   *
   * @param handler a permanent id. Default: all handlers
   * @param page.limit 1 to 100
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   */
  groupDeadLetters(
    handler: string | undefined,
    page: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<Page<DeadLetterGroup>>;
  /**
   * Searches the log from the newest event backwards, and examines at most 10,000 events per call. Dates are found by bisection, which
   * may miss events of transactions that were open for more than a minute.
   *
   * @param page.limit 1 to 1,000
   * @throws InvalidCursorError `invalid-cursor` when `after` is not a place of this search
   */
  searchEvents(
    filter: LogFilter,
    page: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<LogSearch>;
  /**
   * The history of a model, by version and then by ordinal.
   *
   * @param page.limit 1 to 1,000
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   */
  history(
    modelId: string,
    page: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<Page<TrackedEvent>>;
  /** What an action committed here; `undefined` when the log does not know it. */
  findAction(actionId: string): Promise<LoggedAction | undefined>;
  /**
   * The requests that were committed under a key; at most 100.
   *
   * @param principal default: every principal
   */
  findKeys(key: string, principal?: string): Promise<readonly FoundKey[]>;
  /**
   * Records, durably, that a change begins.
   *
   * @throws ConstraintViolationError `constraint-violation` when the beginning is recorded already; that record stays
   */
  beginChange(change: OperatorChange): Promise<void>;
  /**
   * Records how a change ended. One that has not begun is not listed.
   *
   * @throws ConstraintViolationError `constraint-violation` when the end is recorded already; that record stays
   */
  endChange(changeId: string, outcome: OperatorOutcome): Promise<void>;
  /**
   * Recorded changes, the newest first.
   *
   * @param page.limit 1 to 1,000
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   */
  changes(page: {
    readonly limit: number;
    readonly after?: string | undefined;
  }): Promise<Page<RecordedChange>>;
}
