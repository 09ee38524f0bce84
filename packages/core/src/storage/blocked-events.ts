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
  /** How many calls did not count as attempts, because storage or another shard could not serve: they lengthen the wait. */
  readonly uncounted: number;
  /** What the last call threw. */
  readonly error: string | undefined;
  /**
   * After how long the next attempt may be made; `undefined`: at once when it is its turn. A negative one has been due for so long
   * already, and comes before what is due since then: suspects before all others.
   */
  readonly retryAfterMs: number | undefined;
  /** Whether no further attempt is to be made: a dead letter. */
  readonly dead: boolean;
  /** Whether it may have killed a process: until an attempt at it has ended. */
  readonly suspect: boolean;
}

/** A handler's slot, by whose lease the blocked events in it are worked on. */
export interface BlockedPlace {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
}

/** A place with how long anything waits there, and how much of it is asked for. */
export interface DuePlace extends BlockedPlace {
  /**
   * The longest wait before an attempt: what is due later than that is due now, because the clock of the database has
   * gone back since. Default: any date is believed.
   */
  readonly waitMaxMs?: number;
  /** How many heads of the handler are asked for, of all its places together. Default: the limit of the call. */
  readonly headsMax?: number;
}

/** A model whose further events must wait, for one handler. */
export interface BlockedModel {
  readonly handler: string;
  readonly slot: number;
  readonly modelName: string;
  readonly modelId: string;
}

/** A model, and by which lease its blocked events are worked on. */
export interface LeasedModel extends BlockedModel {
  readonly token: string;
}

/** The first blocked event of a model, whose turn it is. */
export interface BlockedHead {
  readonly handler: string;
  readonly token: string;
  readonly event: DeliverableEvent;
  /** How many attempts count: that failed by themselves, or were made alone, and did not end. */
  readonly attempts: number;
  /** How many attempts since the last one that ended did not: their processes are gone, or have lost their leases. */
  readonly openCount: number;
  /** How many calls did not count as attempts. */
  readonly uncounted: number;
  /** Whether it may have killed a process, and no attempt at it has ended since. */
  readonly suspect: boolean;
}

/** One attempt at a blocked event. */
export interface BlockedAttempt {
  /** Identifies it among all that are ever made. */
  readonly id: string;
  /** Whether it counts from its beginning, because it is made alone; else only when it has failed by itself. */
  readonly counted: boolean;
}

/**
 * How an attempt at a blocked event ended; `postponed`: it does not count, because the call did not fail by itself.
 */
export type BlockedOutcome =
  | { readonly kind: 'done' }
  | { readonly kind: 'retry'; readonly error: string; readonly retryAfterMs: number }
  | { readonly kind: 'postponed'; readonly error: string; readonly retryAfterMs: number }
  | { readonly kind: 'dead'; readonly error: string };

/** Port: the events of one database that wait for a handler, and the attempts at them. */
export interface BlockedEvents {
  /**
   * Blocks events of the log, as the log holds them; one that is blocked already stays as it is. Gives back the tokens of
   * leases that are lost.
   *
   * @throws InvariantViolationError `invariant-violation` for an event that the log has lost, where payload and params were left out
   * of what is given
   */
  block(events: readonly BlockedEvent[]): Promise<readonly string[]>;
  /**
   * The models that have blocked events there: their further events must be blocked, too. There may be very
   * many: they come in an order of their own, a bounded number at once.
   *
   * @param page.after the last one of the page before
   */
  models(
    places: readonly BlockedPlace[],
    page: { readonly limit: number; readonly after?: BlockedModel | undefined },
  ): Promise<readonly BlockedModel[]>;
  /**
   * Those of the given models that have blocked events, and those whose lease holds no more: after a failover, a model may have none
   * only because they were lost.
   */
  stillBlocked(models: readonly LeasedModel[]): Promise<readonly BlockedModel[]>;
  /**
   * The first blocked event of each model that is due for an attempt there, the longest due first; no handler's keep those of
   * another one out.
   *
   * A model whose first blocked event is a dead letter, or not due yet, has none; a paused handler, and a slot without a lease that
   * holds, have none at all.
   *
   * @param limit how many of each handler
   * @param options.bytesMax larger events come without payload and params, as in {@link DeliveryLog.read}
   * @param options.except models that are left out, because they are being tried
   */
  dueHeads(
    places: readonly DuePlace[],
    limit: number,
    options?: { readonly bytesMax?: number; readonly except?: readonly BlockedModel[] },
  ): Promise<readonly BlockedHead[]>;
  /** Those of the places where the longest due of all is a suspect, also while the handler is paused. */
  suspectPlaces(places: readonly BlockedPlace[]): Promise<readonly BlockedPlace[]>;
  /** Milliseconds until the next blocked event is due there, or `undefined` when none waits. */
  nextDueMs(places: readonly BlockedPlace[]): Promise<number | undefined>;
  /**
   * Records an attempt before it is made, because the call may end the process; false when the lease was lost, the event
   * is no longer blocked, or does not stand as its head says. Reporting it twice counts it once, also when it ended in between.
   *
   * @param before an open attempt that goes on as this one, and is taken back; false when it has ended
   */
  beginAttempt(head: BlockedHead, attempt: BlockedAttempt, before?: BlockedAttempt): Promise<boolean>;
  /**
   * Records how an attempt ended, and that none is open any more: the event does not end processes; false when the lease was
   * lost. Recording it twice changes nothing more, whatever an operator did in between.
   *
   * @param attempt `undefined` when none was begun: the event is ended without one, if it still stands as its head says
   */
  endAttempt(
    head: BlockedHead,
    attempt: BlockedAttempt | undefined,
    outcome: BlockedOutcome,
  ): Promise<boolean>;
  /**
   * Takes back an attempt that was given up without an outcome, because its process stops or has lost its lease; so it
   * needs no lease. Changes nothing when an attempt has ended since, or this one never began.
   */
  giveBackAttempt(head: BlockedHead, attempt: BlockedAttempt): Promise<void>;
  /**
   * Those of the given events that may be delivered to their handlers again: the handler's saved cursor has not passed
   * them, or they are blocked, as dead letters, too; or they are not in the log, and were made before the database held their
   * shards, so that they may be in the log of the database that held them then.
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
}

/** A blocked event, for operators. */
export interface BlockedRow {
  readonly handler: string;
  readonly event: DeliverableEvent;
  readonly attempts: number;
  /** How many calls did not count as attempts, because storage or another shard could not serve. */
  readonly uncounted: number;
  readonly error: string | undefined;
  readonly dead: boolean;
  readonly blockedDate: Date;
  /** When the next attempt may be made; `undefined` for a dead letter and for one that waits for its turn. */
  readonly nextAttemptDate: Date | undefined;
}

/** What one step of many has done. */
export interface DeadLettersStep {
  /** How many dead letters were changed. */
  readonly count: number;
  /** Pass it as `after` to go on; `undefined` after the last step. */
  readonly next: string | undefined;
}

/** Which dead letters one step is about: a bounded number of those behind the step before. */
export interface StepPlace {
  readonly limit: number;
  readonly after?: string;
}

/** Port: the blocked events of one database as operators see them, and what they do with dead letters. */
export interface DeadLetters {
  /**
   * Blocked events, the oldest first. A page has less than its limit where its events are large; it has a `next` then.
   *
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   * @throws InvariantViolationError `invariant-violation` when the limit is no whole number, or below zero
   */
  find(
    filter: BlockedFilter,
    page: { readonly limit: number; readonly after?: string },
  ): Promise<Page<BlockedRow>>;
  /** Gives dead letters their attempts back, to be tried when it is their turn; the oldest first, step by step. */
  replay(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep>;
  /**
   * Removes dead letters, or with `dead: false` events that still wait, so that their models' later events go on; the oldest first,
   * step by step.
   */
  skip(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep>;
}
