import type { HandledEvent } from '../idempotency/handled-event.js';
import type { DeliverableEvent } from './deliverable-event.js';

/** An event that waits for a handler: it failed, or an earlier event of its model did. */
export interface ParkedEvent {
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
  /** After how long the next attempt may be made; `undefined`: at once when it is its turn. */
  readonly retryAfterMs: number | undefined;
  /** Whether no further attempt is to be made: a dead letter. */
  readonly dead: boolean;
  /** Whether it may have killed a process: such events are tried one at a time. */
  readonly suspect: boolean;
}

/** A handler's slot, by whose lease the parked events in it are worked on. */
export interface ParkedPlace {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
}

/** A place with how long anything waits there. */
export interface DuePlace extends ParkedPlace {
  /**
   * The longest wait before an attempt: what is due later than that was said by a clock of the database that has gone back since,
   * and is due now. Default: any date is believed.
   */
  readonly waitMaxMs?: number;
}

/** A model whose further events must wait, for one handler. */
export interface ParkedModel {
  readonly handler: string;
  readonly slot: number;
  readonly modelName: string;
  readonly modelId: string;
}

/** The first parked event of a model, whose turn it is. */
export interface ParkedHead {
  readonly handler: string;
  readonly token: string;
  readonly event: DeliverableEvent;
  /** How many attempts were made before this one, also those of which nobody has said how they ended. */
  readonly attempts: number;
  /** How many calls did not count as attempts. */
  readonly uncounted: number;
  readonly suspect: boolean;
}

/**
 * How an attempt at a parked event ended; `postponed`: it does not count, because the call did not fail by itself.
 */
export type ParkedOutcome =
  | { readonly kind: 'done' }
  | { readonly kind: 'retry'; readonly error: string; readonly retryAfterMs: number }
  | { readonly kind: 'postponed'; readonly error: string; readonly retryAfterMs: number }
  | { readonly kind: 'dead'; readonly error: string };

/** Port: the events of one database that wait for a handler, and the attempts at them. */
export interface ParkedEvents {
  /**
   * Parks events of the log, as the log holds them; one that is parked already stays as it is. Gives back the tokens of
   * leases that are lost.
   */
  park(events: readonly ParkedEvent[]): Promise<readonly string[]>;
  /**
   * The models that have parked events there: their further events must be parked, too. There may be very
   * many: they come in an order of their own, a bounded number at once.
   *
   * @param page.after the last one of the page before
   */
  models(
    places: readonly ParkedPlace[],
    page: { readonly limit: number; readonly after?: ParkedModel | undefined },
  ): Promise<readonly ParkedModel[]>;
  /** Those of the given models that have parked events. */
  stillParked(models: readonly ParkedModel[]): Promise<readonly ParkedModel[]>;
  /**
   * The first parked event of each model that is due for an attempt there, the longest due first.
   *
   * A model whose first parked event is a dead letter, or not due yet, has none; a paused handler has none at all.
   *
   * @param bytesMax larger events come without payload and params, as in {@link DeliveryLog.read}
   */
  dueHeads(places: readonly DuePlace[], limit: number, bytesMax?: number): Promise<readonly ParkedHead[]>;
  /** Milliseconds until the next parked event is due there, or `undefined` when none waits. */
  nextDueMs(places: readonly ParkedPlace[]): Promise<number | undefined>;
  /**
   * Counts an attempt before it is made, because the call may end the process; false when the lease was lost or the event
   * is parked no more.
   *
   * @param attemptId names this attempt among all that are ever made: telling it twice counts it once
   */
  beginAttempt(head: ParkedHead, attemptId: string): Promise<boolean>;
  /**
   * Says how an attempt ended; false when the lease was lost. Telling it twice changes nothing more, whatever an operator did in
   * between.
   *
   * @param attemptId `undefined` when none was begun: the event is ended without one, if it still stands as its head says
   */
  endAttempt(head: ParkedHead, attemptId: string | undefined, outcome: ParkedOutcome): Promise<boolean>;
  /**
   * Takes back the count of an attempt that was given up without an outcome, because its process stops or has lost its
   * lease; so it needs no lease. Changes nothing when the attempt has ended, or was never counted.
   */
  giveBackAttempt(head: ParkedHead, attemptId: string): Promise<void>;
  /**
   * Those of the given events that may be delivered to their handlers again: the handler's saved cursor has not passed
   * them, or they are parked, as dead letters, too.
   */
  mayComeAgain<Event extends Pick<HandledEvent, 'handler' | 'eventId'>>(
    events: readonly Event[],
  ): Promise<readonly Event[]>;
}
