import type { DeliverableEvent } from './event-log.js';
import type { HandledEvent } from './idempotency-keys.js';
import type { Page } from './repository.js';

/** A place in the history of a model. The events of one version have different ordinals. */
export interface ModelPosition {
  readonly modelVersion: number;
  readonly ordinal: number;
}

/** A slot of a handler, whose lease covers the blocked models in it. */
export interface BlockedPlace {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
}

/** A place, with a limit on waits and on the number of models to return. */
export interface DuePlace extends BlockedPlace {
  /**
   * The longest possible wait before an attempt. Anything due later than that is due now, because the database's clock must have
   * gone back. Default: no limit.
   */
  readonly waitMaxMs?: number;
  /** How many models of the handler to return at most, over all its places. Default: the limit of the call. */
  readonly headsMax?: number;
}

/** A model whose events wait, for one handler. */
export interface BlockedModel extends BlockedPlace {
  readonly modelName: string;
  readonly modelId: string;
}

/** A model, with the token of the lease that covers it. */
export interface LeasedModel extends BlockedModel {
  readonly token: string;
}

/** One attempt at the head of a blocked model. */
export interface BlockedAttempt {
  /** Unique among all attempts ever made. */
  readonly id: string;
  /**
   * Whether it counts from its beginning, because it is made alone; otherwise it counts only once it has failed for a reason of its
   * own.
   */
  readonly counted: boolean;
}

/** How often a call with the head of a blocked model was made. */
export interface AttemptCounts {
  /** How many attempts count: those that failed for a reason of their own, and those that were made alone and did not end. */
  readonly attempts: number;
  /**
   * How many calls did not count as attempts, because storage or another shard was unavailable; the backoff depends on it. A replay
   * adds one, so that a failure from before it that is reported late is not taken for a new one.
   */
  readonly uncounted: number;
}

/** The head of a blocked model: its first event that is not known to be done. */
export interface BlockedHead extends LeasedModel, AttemptCounts {
  /** Everything before it is done. */
  readonly position: ModelPosition;
  /** The first event from there on; `undefined` when the log has none. */
  readonly event: DeliverableEvent | undefined;
  /** Whether this event has failed; false when the model only has to be read on from here. */
  readonly hasFailed: boolean;
  /** How many attempts have stayed open since the last one that ended: their processes are dead, or have lost their leases. */
  readonly openCount: number;
  /** The ids of later events that are done although the head has failed. */
  readonly doneIds: readonly string[];
}

/** An event that has failed. It becomes the head of its model, which is blocked now. */
export interface BlockedFailure extends AttemptCounts {
  /** The handler's permanent id. */
  readonly handler: string;
  /** The token of the handler's lease of the event's slot. */
  readonly token: string;
  readonly event: DeliverableEvent;
  /** The attempt at the head that has failed; `undefined` when none was recorded. */
  readonly attempt: BlockedAttempt | undefined;
  /**
   * The counts of the head, if its attempt was not recorded: nothing changes if they are others by now. If the number of attempts
   * stays the same, they stay as they are, open ones as well, unless it is a dead letter. Default: no attempts, and none is open.
   */
  readonly before?: AttemptCounts | undefined;
  /** What the last call threw. */
  readonly error: string | undefined;
  /** How long until the next attempt may be made; `undefined` for a dead letter. */
  readonly retryAfterMs: number | undefined;
  /** Whether it is a dead letter: no further attempt will be made. */
  readonly dead: boolean;
  /** The ids of all later events of the model that are known to be done. Default: none. */
  readonly doneIds?: readonly string[];
}

/** How far a blocked model has come. */
export interface BlockedMove extends LeasedModel {
  /** Everything before this is done. */
  readonly position: ModelPosition;
  /** Whether nothing is left: then the model is not blocked any more. */
  readonly ends: boolean;
  /** Whether open attempts stay open, because what follows is tried in one of them; none of them counts then. Default: false. */
  readonly keepsAttempts?: boolean;
}

/** Port: the models of one database whose events wait for a handler, one row each, and the attempts at their heads. */
export interface BlockedModels {
  /**
   * Blocks the models of events that have failed, each at that event. A model that is blocked already moves to the event, unless it
   * is beyond it. A failed attempt at a head blocks no model that is open by now. Recording a failure twice changes nothing, whatever
   * an operator did in between. Returns the tokens of leases that are lost.
   *
   * @param failures at most one of each model
   */
  fail(failures: readonly BlockedFailure[]): Promise<readonly string[]>;
  /**
   * Blocks the models of untried events, each at that event, and makes them due before all others. A model that is blocked already
   * stays unchanged. Returns the tokens of leases that are lost.
   *
   * @param events one of each model
   */
  hold(
    events: readonly { readonly handler: string; readonly token: string; readonly event: DeliverableEvent }[],
  ): Promise<readonly string[]>;
  /**
   * The blocked models in these places. There may be very many, so they are returned in pages, in an order of the adapter's choice.
   *
   * @param page.after the last one of the previous page
   */
  models(
    places: readonly BlockedPlace[],
    page: { readonly limit: number; readonly after?: BlockedModel | undefined },
  ): Promise<readonly (BlockedModel & Pick<BlockedHead, 'hasFailed'>)[]>;
  /**
   * The heads of the models that are due in these places, longest due first. The models of one handler never crowd out those of
   * another.
   *
   * Models whose head is a dead letter, or not due yet, are left out, as are paused handlers and slots without a valid lease.
   *
   * @param limit how many of each handler
   * @param options.bytesMax larger events come without payload and params, as in {@link DeliveryLog.read}
   * @param options.except models to leave out, because they are being worked on
   */
  dueHeads(
    places: readonly DuePlace[],
    limit: number,
    options?: { readonly bytesMax?: number; readonly except?: readonly BlockedModel[] },
  ): Promise<readonly BlockedHead[]>;
  /** Milliseconds until the next model is due in these places; `undefined` when none waits. */
  nextDueMs(places: readonly BlockedPlace[]): Promise<number | undefined>;
  /**
   * Records attempts before they are made, because the calls may end the process; or that an attempt that is open counts or does not.
   * Answers for each whether it is recorded: it is not when the lease was lost or the head has changed since it was read. Recording an
   * attempt twice counts it once. The model moves to the head's event, so that its failure is found there.
   *
   * @param attempts at most one of each model
   */
  begin(
    attempts: readonly { readonly head: BlockedHead; readonly attempt: BlockedAttempt }[],
  ): Promise<readonly boolean[]>;
  /**
   * Takes back an attempt that was abandoned without an outcome, because its process stops or has lost its lease; so no lease is
   * needed. Changes nothing if an attempt has ended since, or if this one never began.
   */
  giveBack(model: BlockedModel, attempt: BlockedAttempt): Promise<void>;
  /**
   * The events of blocked models from a position on, those of each model by version and ordinal; none of a model whose lease is lost,
   * because the position may be one of another history of the database.
   *
   * @param limit how many of each model
   * @param bytesMax larger events come without payload and params, as in {@link DeliveryLog.read}
   */
  read(
    models: readonly (LeasedModel & { readonly position: ModelPosition })[],
    limit: number,
    bytesMax?: number,
  ): Promise<readonly (readonly DeliverableEvent[])[]>;
  /**
   * Moves blocked models forward, and closes the attempts at what they pass unless these go on; the next events are due at once. Returns the tokens of
   * leases that are lost. No model moves back: a move that the caller gave up waiting for may arrive after a later one. The ids of
   * later events that are done stay.
   *
   * @param moves at most one of each model
   */
  move(moves: readonly BlockedMove[]): Promise<readonly string[]>;
  /**
   * Those of the given events that may still be delivered to their handlers: the handler's saved cursor has not passed them; or
   * their model is blocked at them or before, possibly by a dead letter; or they are not in the log and were created before the
   * database held their shards, so they may be in the log of the database that held them then.
   */
  mayComeAgain<Event extends HandledEvent>(events: readonly Event[]): Promise<readonly Event[]>;
}

/** The position right after an event. */
export function positionAfter({ modelVersion, ordinal }: ModelPosition): ModelPosition {
  return { modelVersion, ordinal: ordinal + 1 };
}

/** Orders positions of one model. */
export function comparePositions(one: ModelPosition, other: ModelPosition): number {
  return one.modelVersion - other.modelVersion || one.ordinal - other.ordinal;
}

/** Which blocked models an operator means, by their heads that have failed; every given field must match. */
export interface BlockedFilter {
  readonly handler?: string;
  readonly eventId?: string;
  readonly eventType?: string;
  readonly modelId?: string;
  /** True: dead letters only; false: only those that will be tried again. Default: both. */
  readonly dead?: boolean;
  /** The first line of the last error, cut off after 200 characters, as in {@link DeadLetterGroup}. */
  readonly errorLine?: string;
}

/** The head of a blocked model, for operators. Later events of the model wait behind it. */
export interface BlockedRow extends AttemptCounts {
  readonly handler: string;
  readonly event: DeliverableEvent;
  readonly error: string | undefined;
  readonly dead: boolean;
  readonly blockedDate: Date;
  /** When the next attempt may be made; `undefined` for a dead letter. */
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
  readonly after?: string | undefined;
}

/** Port: shows operators the heads of the blocked models of one database that have failed, and changes them. */
export interface DeadLetters {
  /**
   * The heads of blocked models that have failed, oldest first. A page with large events may have fewer than its limit, and still
   * have a `next`.
   *
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   * @throws InvariantViolationError `invariant-violation` when the limit is not a whole number, or is negative
   */
  find(
    filter: BlockedFilter,
    page: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<Page<BlockedRow>>;
  /** How many heads of blocked models match, counted up to `countMax`. */
  countBlocked(filter: BlockedFilter, countMax: number): Promise<number>;
  /** The head of a blocked model, tried or not; it comes before all later events, however many there are. */
  headOf(model: BlockedModel): Promise<BlockedRow | undefined>;
  /** Gives dead letters their attempts back, so that they are tried again; oldest first, step by step. */
  replay(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep>;
  /**
   * Passes over dead letters, or with `dead: false` over heads that will be tried again, so that later events of their models
   * continue; oldest first, step by step. Repeating it skips no further events.
   */
  skip(filter: BlockedFilter, step: StepPlace): Promise<DeadLettersStep>;
}
