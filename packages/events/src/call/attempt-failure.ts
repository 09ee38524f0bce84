import { type ErrorCode, FrameworkError, type StaleRecordError } from '@framework/core';
import { type DeliverableEvent, RetryLaterError } from '@framework/core/adapter';

/** An event of a batch that failed, and why. */
export interface EventFailure {
  readonly eventId: string;
  /** Whatever a handler may throw: it is classified, recorded and shown as if the event had been handled alone. */
  readonly error: unknown;
}

/**
 * Thrown by a batch handler that knows what became of each event of its batch, such as one that sends them with a bulk request.
 *
 * The first event of a model that it names is tried again by itself, even with `whenBatchFails: 'wait'`; later events of the model
 * wait for that. An event that could not be tried, for example because its target is down or an earlier one of its model has failed,
 * is named as waiting, and uses no attempt. All events that are not named are done, and are never delivered again, even those
 * behind a failed event. If an event is named that is not in the batch, or none is, the whole batch has failed.
 *
 * A call whose signal is aborted, because delivery stops or hands the slot over, has about a second to name what is done by then:
 * see `done`. All other events of the batch are delivered again.
 */
export class PartialBatchError extends Error {
  override readonly name = 'PartialBatchError';
  readonly failures: readonly EventFailure[];
  /** The ids of events that are neither done nor failed. */
  readonly waiting: readonly string[];
  /** The ids of events that are done even if the signal of the call is aborted. */
  readonly done: readonly string[];

  /**
   * @param options.waiting the ids of events that are neither done nor failed. Default: none
   * @param options.done the ids of events that are done. Only these count once the signal of the call is aborted. Default: none
   */
  constructor(
    failures: readonly EventFailure[],
    {
      waiting = [],
      done = [],
    }: { readonly waiting?: readonly string[]; readonly done?: readonly string[] } = {},
  ) {
    const [first] = failures;
    super(`Events of the batch failed: ${failures.length}; wait: ${waiting.length}`, { cause: first?.error });
    this.failures = [...failures];
    this.waiting = [...waiting];
    this.done = [...done];
  }
}

/**
 * The errors of the events of a batch that are not done, by the ids of the events; `undefined` when the batch failed as a whole.
 * Never throws, whatever was thrown: a batch has also failed as a whole if its failures cannot be read.
 */
export function partialFailure(
  thrown: unknown,
  events: readonly DeliverableEvent[],
): ReadonlyMap<string, unknown> | undefined {
  const named = attempted(() => failuresIn(thrown), new Map<string, unknown>());
  const ids = new Set(events.map(({ id }) => id));
  return named.size > 0 && [...named.keys()].every((id) => ids.has(id)) ? named : undefined;
}

/** The ids of the events that a {@link PartialBatchError} names as done; never throws, whatever was thrown. */
export function namedAsDone(thrown: unknown): ReadonlySet<string> {
  return attempted(() => new Set(thrown instanceof PartialBatchError ? thrown.done : []), new Set());
}

function failuresIn(thrown: unknown): ReadonlyMap<string, unknown> {
  if (!(thrown instanceof PartialBatchError)) return new Map();
  const { failures, waiting, cause } = thrown;
  const message = 'The handler left the event to another batch';
  const later = new RetryLaterError({ afterMs: waitingMs, message, cause });
  return new Map([
    ...waiting.map((eventId) => [eventId, later] as const),
    ...failures.map(({ eventId, error }) => [eventId, error] as const),
  ]);
}

/** How long an event that a batch handler names as waiting waits before it is tried. */
const waitingMs = 1_000;

/** A call of a handler that did not succeed. */
export interface AttemptFailure {
  /** The handler's durable name. */
  readonly handler: string;
  /** The event that it was called with; of a batch, the first one, or the one that a {@link PartialBatchError} names. */
  readonly event: DeliverableEvent;
  /** How many events have failed: 1, except for a batch that failed as a whole. */
  readonly eventCount: number;
  /** Which attempt it was, from 1. */
  readonly attempt: number;
  /** What the call threw. */
  readonly error: unknown;
  /**
   * Whether it counts as an attempt. It does not if storage or another shard was unavailable, if the handler has thrown a
   * `RetryLaterError`, or if several events failed together: each of them is tried alone first.
   */
  readonly counted: boolean;
  /** Whether the event is retried automatically; false means that it is now a dead letter. */
  readonly willRetry: boolean;
  /** The shortest time until the retry, in milliseconds; `undefined` for a dead letter. */
  readonly retryAfterMs: number | undefined;
}

/** Called for every handler call that did not succeed. */
export type AttemptFailureHook = (failure: AttemptFailure) => void;

/** Writes the failure to standard error, in one line: the default when no hook is given. */
export function logAttemptFailure({ handler, event, eventCount, ...failure }: AttemptFailure): void {
  const { attempt, error, counted, retryAfterMs } = failure;
  const events = eventCount === 1 ? event.id : `${event.id} and ${eventCount - 1} more`;
  const next =
    retryAfterMs === undefined
      ? 'the event is a dead letter now, and later events of the model wait behind it until you replay or skip it with DeliveryOperator'
      : `the next attempt is due after ${Math.ceil(retryAfterMs)} ms${untilConfigured(error)}`;
  const made = counted ? `attempt ${attempt} failed` : `attempt ${attempt} failed, but does not count`;
  const reason = errorText(error).replaceAll(/\s+/g, ' ');
  // oxlint-disable-next-line no-console -- silence is never the default
  console.error(
    `Handler ${handler}, ${event.type} ${events} of ${event.modelName} ${event.modelId}: ${made}; ${next}: ${reason}`,
  );
}

/** Names what the retries wait for when an operator must act. */
function untilConfigured(error: unknown): string {
  if (FrameworkError.find(error)?.code !== 'unknown-shard') return '';
  return ', and attempts continue until the shard is in the configuration of this process, or a process that has it takes over';
}

/**
 * What a failed call means for its event.
 *
 * `counts`: the call failed by itself, which is an attempt. `outage`: storage or another shard was unavailable, or the handler has
 * thrown a `RetryLaterError`, so the same call may succeed later; it is not an attempt, however long that takes. `final`: the error
 * says that the same call cannot succeed.
 */
export type AttemptVerdict = 'counts' | 'outage' | 'final';

/** Codes of errors that every further call in this process would meet again, but that say nothing about the event. */
const waitingCodes: ReadonlySet<ErrorCode> = new Set(['unknown-shard', 'databases-closed']);

/** Classifies what a call of a handler threw, by the framework's error in it, which may be wrapped as a cause; never throws. */
export function attemptVerdict(thrown: unknown): AttemptVerdict {
  try {
    const known = FrameworkError.find(thrown);
    // The handler itself took too long, whatever it waited for.
    if (known === undefined || known.code === 'handler-timeout' || isTakenId(known)) return 'counts';
    // A process that knows more shards, or has not closed its databases, takes the event over, or this one does after its next start.
    if (known.retryable || waitingCodes.has(known.code)) return 'outage';
    return 'final';
  } catch {
    // What was thrown is a proxy that refuses to be read.
    return 'counts';
  }
}

/** Whether an action kept adding a model whose id is taken: it may do so for ever, unless it looks for the model first. */
function isTakenId(known: FrameworkError): boolean {
  return known.code === 'stale-record' && (known as StaleRecordError).expectedVersion === 0;
}

/** How much longer than asked for a wait is at most, as a part of it: events that were postponed together spread out. */
const askedSpread = 0.1;

/** The longest wait that a handler can ask for, in milliseconds. */
export const askedMaxMs: number = RetryLaterError.afterMaxMs * (1 + askedSpread);

/**
 * How long to wait, in milliseconds, because what was thrown asks for it; `undefined` when it does not. Never throws.
 *
 * @param random a number from 0 to 1
 */
export function askedWaitMs(thrown: unknown, random: number): number | undefined {
  const known = FrameworkError.find(thrown);
  const afterMs = attempted(
    () => (known?.code === 'retry-later' ? (known as RetryLaterError).afterMs : undefined),
    undefined,
  );
  return afterMs === undefined ? undefined : afterMs * (1 + askedSpread * random);
}

const charactersMax = 2_000;
const causesMax = 5;
const partsMax = 10;
const unreadable = '(unreadable)';

/**
 * What a failed attempt threw, as shown to operators: name, message and causes, at most 2,000 characters.
 *
 * Never throws, and returns text that every database can store, whatever was thrown: recording a failure must not depend on what
 * failed.
 */
export function errorText(thrown: unknown): string {
  const links: string[] = [];
  const seen = new Set<unknown>();
  let link = thrown;
  do {
    seen.add(link);
    links.push(linkText(link));
    link = causeOf(link);
  } while (link !== undefined && links.length < causesMax && !seen.has(link));
  return storable(links.join(', caused by '));
}

/** Name and message of an error; of an AggregateError also its first errors, without those that they contain. */
function linkText(thrown: unknown, isPart = false): string {
  // A proxy that throws when it is inspected does not count as an error.
  if (!attempted(() => thrown instanceof Error, false))
    return textOf(() => thrown, `a thrown ${typeof thrown} that has no text`);
  const error = thrown as Error;
  const text = `${textOf(() => error.name, unreadable)}: ${textOf(() => error.message, unreadable)}`;
  const parts = isPart ? [] : partsOf(error);
  return parts.length === 0 ? text : `${text} [${parts.map((part) => linkText(part, true)).join('; ')}]`;
}

/** The text of a value, cut so that the other steps stay cheap; both `read` and `String` may throw. */
function textOf(read: () => unknown, otherwise: string): string {
  return attempted(() => String(read()).slice(0, charactersMax), otherwise);
}

function causeOf(thrown: unknown): unknown {
  return attempted(() => (thrown instanceof Error ? thrown.cause : undefined), undefined);
}

function partsOf(error: Error): readonly unknown[] {
  return attempted(
    () => (error instanceof AggregateError ? Array.from(error.errors.slice(0, partsMax) as unknown[]) : []),
    [],
  );
}

/** PostgreSQL's text can contain neither NUL nor a lone surrogate. */
function storable(text: string): string {
  const cut = text.replaceAll('\0', '').slice(0, charactersMax);
  // The cut itself may have split a surrogate pair.
  const whole = cut.length === charactersMax ? cut.replace(/[\ud800-\udbff]$/, '') : cut;
  return whole.toWellFormed();
}

function attempted<T>(work: () => T, otherwise: T): T {
  try {
    return work();
  } catch {
    return otherwise;
  }
}
