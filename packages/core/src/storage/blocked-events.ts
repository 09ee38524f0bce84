import type { DeliverableEvent } from './event-log.js';
import type { HandledEvent } from './idempotency-keys.js';
import type { Page } from './repository.js';

/** An event that waits for a handler: it failed, or an earlier event of its model did. */
export interface BlockedEvent {
  /** The handler's permanent id. */
  readonly handler: string;
  /** The token of the handler's lease of the event's slot. */
  readonly token: string;
  readonly event: DeliverableEvent;
  /** How many attempts were made: 0 when it only waits for an earlier event of its model. */
  readonly attempts: number;
  /** How many calls did not count as attempts, because storage or another shard was unavailable; the backoff depends on it. */
  readonly uncounted: number;
  /** What the last call threw. */
  readonly error: string | undefined;
  /**
   * How long until the next attempt may be made; `undefined` means at once, when it is first in line. A negative value means that
   * it has been due for that long, and comes before events that became due later. Events in quarantine always come first.
   */
  readonly retryAfterMs: number | undefined;
  /** Whether it is a dead letter: no further attempt will be made. */
  readonly dead: boolean;
  /** Whether it may have killed a process; false once an attempt at it has ended. */
  readonly suspect: boolean;
}

/** A slot of a handler, whose lease covers the blocked events in it. */
export interface BlockedPlace {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
}

/** A place, with a limit on waits and on the number of events to return. */
export interface DuePlace extends BlockedPlace {
  /**
   * The longest possible wait before an attempt. Anything due later than that is due now, because the database's clock must have
   * gone back. Default: no limit.
   */
  readonly waitMaxMs?: number;
  /** How many heads of the handler to return at most, over all its places. Default: the limit of the call. */
  readonly headsMax?: number;
}

/** A model whose further events must wait, for one handler. */
export interface BlockedModel {
  readonly handler: string;
  readonly slot: number;
  readonly modelName: string;
  readonly modelId: string;
}

/** A model, with the token of the lease that covers its blocked events. */
export interface LeasedModel extends BlockedModel {
  readonly token: string;
}

/** The first blocked event of a model, which is the next to be tried. */
export interface BlockedHead {
  readonly handler: string;
  readonly token: string;
  readonly event: DeliverableEvent;
  /** How many attempts count: those that failed for a reason of their own, and those that were made alone and did not end. */
  readonly attempts: number;
  /** How many attempts have stayed open since the last one that ended: their processes are dead, or have lost their leases. */
  readonly openCount: number;
  /** How many calls did not count as attempts. */
  readonly uncounted: number;
  /** Whether it may have killed a process, and no attempt at it has ended since. */
  readonly suspect: boolean;
}

/** One attempt at a blocked event. */
export interface BlockedAttempt {
  /** Unique among all attempts ever made. */
  readonly id: string;
  /**
   * Whether it counts from its beginning, because it is made alone; otherwise it counts only once it has failed for a reason of its
   * own.
   */
  readonly counted: boolean;
}

/**
 * How an attempt at a blocked event ended; `postponed` means that it does not count, because its failure had an outside cause, such
 * as an unavailable shard.
 */
export type BlockedOutcome =
  | { readonly kind: 'done' }
  | { readonly kind: 'retry'; readonly error: string; readonly retryAfterMs: number }
  | { readonly kind: 'postponed'; readonly error: string; readonly retryAfterMs: number }
  | { readonly kind: 'dead'; readonly error: string };

/** Port: the events of one database that wait for a handler, and the attempts at them. */
export interface BlockedEvents {
  /**
   * Blocks events, and stores each as it is in the log, or as it was passed if the log has lost it; events that are already blocked
   * stay unchanged. Returns the tokens of leases that are lost.
   *
   * @throws InvariantViolationError `invariant-violation` when the log has lost an event that was passed without payload and params
   */
  block(events: readonly BlockedEvent[]): Promise<readonly string[]>;
  /**
   * The models that have blocked events in these places: their further events must be blocked, too. There may be very many, so
   * they are returned in pages, in an order of the adapter's choice.
   *
   * @param page.after the last one of the previous page
   */
  models(
    places: readonly BlockedPlace[],
    page: { readonly limit: number; readonly after?: BlockedModel | undefined },
  ): Promise<readonly BlockedModel[]>;
  /**
   * Those of the given models that have blocked events, and those whose lease is no longer valid: a failover may have lost their
   * blocked events.
   */
  stillBlocked(models: readonly LeasedModel[]): Promise<readonly BlockedModel[]>;
  /**
   * The first blocked event of each model that is due for an attempt in these places, longest due first. The events of one
   * handler never crowd out those of another.
   *
   * Models whose first blocked event is a dead letter, or not due yet, are left out, as are paused handlers and slots without a
   * valid lease.
   *
   * @param limit how many of each handler
   * @param options.bytesMax larger events come without payload and params, as in {@link DeliveryLog.read}
   * @param options.except models to leave out, because they are being tried
   */
  dueHeads(
    places: readonly DuePlace[],
    limit: number,
    options?: { readonly bytesMax?: number; readonly except?: readonly BlockedModel[] },
  ): Promise<readonly BlockedHead[]>;
  /** Those of the places in which the event that has been due longest is a suspect; places of paused handlers are included. */
  suspectPlaces(places: readonly BlockedPlace[]): Promise<readonly BlockedPlace[]>;
  /** Milliseconds until the next blocked event is due in these places; `undefined` when none waits. */
  nextDueMs(places: readonly BlockedPlace[]): Promise<number | undefined>;
  /**
   * Records an attempt before it is made, because the call may end the process. Returns false when the lease was lost, the event
   * is no longer blocked, or its state has changed since the head was read. Recording an attempt twice counts it once, even if it
   * ended in between.
   *
   * @param before an open attempt that continues as this one, and is taken back; the result is false if it has ended
   */
  beginAttempt(head: BlockedHead, attempt: BlockedAttempt, before?: BlockedAttempt): Promise<boolean>;
  /**
   * Records how an attempt ended, and closes those that are still open: the event has shown that it does not kill its process.
   * Returns false when the lease was lost. Recording it twice changes nothing, whatever an operator did in between.
   *
   * @param attempt `undefined` when none was begun: then the event is ended without an attempt, if its state has not changed
   * since the head was read
   */
  endAttempt(
    head: BlockedHead,
    attempt: BlockedAttempt | undefined,
    outcome: BlockedOutcome,
  ): Promise<boolean>;
  /**
   * Takes back an attempt that was abandoned without an outcome, because its process stops or has lost its lease; so no lease is
   * needed. Changes nothing if an attempt has ended since, or if this one never began.
   */
  giveBackAttempt(head: BlockedHead, attempt: BlockedAttempt): Promise<void>;
  /**
   * Those of the given events that may still be delivered to their handlers: the handler's saved cursor has not passed them; or
   * they are blocked, possibly as dead letters; or they are not in the log and were created before the database held their
   * shards, so they may be in the log of the database that held them then.
   */
  mayComeAgain<Event extends HandledEvent>(events: readonly Event[]): Promise<readonly Event[]>;
}

/** Which blocked events an operator means; every given field must match. */
export interface BlockedFilter {
  readonly handler?: string;
  readonly eventId?: string;
  readonly eventType?: string;
  readonly modelId?: string;
  /** True: dead letters only; false: only those that still wait. Default: both. */
  readonly dead?: boolean;
  /** The first line of the last error, cut off after 200 characters, as in {@link DeadLetterGroup}. */
  readonly errorLine?: string;
}

/** A blocked event, for operators. */
export interface BlockedRow {
  readonly handler: string;
  readonly event: DeliverableEvent;
  readonly attempts: number;
  /** How many calls did not count as attempts, because storage or another shard was unavailable. */
  readonly uncounted: number;
  readonly error: string | undefined;
  readonly dead: boolean;
  readonly blockedDate: Date;
  /** When the next attempt may be made; `undefined` for a dead letter, and for an event behind another one. */
  readonly nextAttemptDate: Date | undefined;
}

/** The result of one step of an operation on many dead letters. */
export interface DeadLettersStep {
  /** How many dead letters were changed. */
  readonly count: number;
  /** Pass it as `after` to continue; `undefined` after the last step. */
  readonly next: string | undefined;
}

/** The range of dead letters for one step: a limited number of those after the previous step. */
export interface StepPlace {
  readonly limit: number;
  readonly after?: string;
}

/** Port: shows operators the blocked events of one database, and changes dead letters for them. */
export interface DeadLetters {
  /**
   * Blocked events, oldest first. A page with large events may have fewer than its limit, and still have a `next`.
   *
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   * @throws InvariantViolationError `invariant-violation` when the limit is not a whole number, or is negative
   */
  find(
    filter: BlockedFilter,
    page: { readonly limit: number; readonly after?: string },
  ): Promise<Page<BlockedRow>>;
  /** The first blocked event of a model, in the order of versions; it is tried before all others, however many there are. */
  firstOf(model: BlockedModel): Promise<BlockedRow | undefined>;
  /** Gives dead letters their attempts back, so that they are tried again; oldest first, step by step. */
  replay(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep>;
  /**
   * Removes dead letters, or with `dead: false` events that still wait, so that later events of their models continue; oldest
   * first, step by step.
   */
  skip(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep>;
}
