import { FrameworkError } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';

/** A call of a handler that did not succeed. */
export interface AttemptFailure {
  /** The handler's durable name. */
  readonly handler: string;
  /** The event that it was called with; the first one of a batch. */
  readonly event: DeliverableEvent;
  /** How many events it was called with: 1 unless it is a batch. */
  readonly eventCount: number;
  /** Which attempt it was, from 1. */
  readonly attempt: number;
  /** What it threw. */
  readonly error: unknown;
  /** Whether it counts as an attempt: not when storage, or another shard, could not serve, nor where the handler waits. */
  readonly counted: boolean;
  /** Whether it is tried again by itself; false: the event is a dead letter now. */
  readonly willRetry: boolean;
  /** After how long, in milliseconds, at the earliest; `undefined` for a dead letter. */
  readonly retryAfterMs: number | undefined;
}

/** Takes every call of a handler that did not succeed. */
export type AttemptFailureHook = (failure: AttemptFailure) => void;

/** Writes the failure to standard error, in one line: the default when no hook is given. */
export function logAttemptFailure({ handler, event, eventCount, ...failure }: AttemptFailure): void {
  const { attempt, error, counted, retryAfterMs } = failure;
  const events = eventCount === 1 ? event.id : `${event.id} and ${eventCount - 1} more`;
  const next =
    retryAfterMs === undefined
      ? 'it is a dead letter now, and later events of the model wait behind it until you replay or skip it with DeliveryOperator'
      : `it is retried after ${Math.ceil(retryAfterMs)} ms${untilConfigured(error)}`;
  const made = counted ? `attempt ${attempt} failed` : `attempt ${attempt} could not be made`;
  const reason = errorText(error).replaceAll(/\s+/g, ' ');
  // oxlint-disable-next-line no-console -- silence is never the default
  console.error(
    `Handler ${handler}, ${event.type} ${events} of ${event.modelName} ${event.modelId}: ${made}, ${next}: ${reason}`,
  );
}

/** What the retries wait for, where somebody has to do something. */
function untilConfigured(error: unknown): string {
  if (FrameworkError.find(error)?.code !== 'unknown-shard') return '';
  return ', and waits until the shard is in the configuration of this process, or a process that has it takes over';
}

/**
 * What a failed call means for its event.
 *
 * `counts`: the call failed by itself, which is an attempt. `outage`: storage or another shard could not serve, so that the
 * same call may succeed later: no attempt, however long it takes. `final`: the error says that doing the same again cannot
 * succeed.
 */
export type AttemptVerdict = 'counts' | 'outage' | 'final';

/** Judges what a call of a handler threw by the framework's error in it, which may be wrapped as a cause; never throws. */
export function attemptVerdict(thrown: unknown): AttemptVerdict {
  try {
    const known = FrameworkError.find(thrown);
    // The handler itself took too long, whatever it waited for.
    if (known === undefined || known.code === 'handler-timeout') return 'counts';
    // A process that knows more shards takes the event over, or this one has the shard after its next deployment.
    if (known.retryable || known.code === 'unknown-shard') return 'outage';
    return 'final';
  } catch {
    // A proxy around an error, which refuses to be read.
    return 'counts';
  }
}

const charactersMax = 2_000;
const causesMax = 5;
const partsMax = 10;

/**
 * What a failed attempt threw, as operators read it: name, message and causes, at most 2,000 characters.
 *
 * Never throws, and gives text that every database can store, whatever was thrown: recording a failure must not depend on
 * what failed.
 */
export function errorText(thrown: unknown): string {
  const links: string[] = [];
  const seen = new Set<unknown>();
  let link: { readonly value: unknown } | undefined = { value: thrown };
  while (link !== undefined && links.length < causesMax && !seen.has(link.value)) {
    seen.add(link.value);
    links.push(linkText(link.value));
    link = causeOf(link.value);
  }
  return storable(links.join(', caused by '));
}

function linkText(thrown: unknown): string {
  if (!isError(thrown)) return textOf(thrown);
  const text = `${propertyText(thrown, 'name')}: ${propertyText(thrown, 'message')}`;
  const parts = partsOf(thrown);
  return parts.length === 0 ? text : `${text} [${parts.map(partText).join('; ')}]`;
}

/** One of several errors in one, without those that it may hold itself. */
function partText(part: unknown): string {
  return isError(part) ? `${propertyText(part, 'name')}: ${propertyText(part, 'message')}` : textOf(part);
}

/** A proxy may refuse the question. */
function isError(value: unknown): value is Error {
  return attempted(() => value instanceof Error, false);
}

function propertyText(error: Error, property: 'name' | 'message'): string {
  return attempted(() => textOf(error[property]), '(unreadable)');
}

/** What JavaScript says is a text may be anything. */
function textOf(thrown: unknown): string {
  return attempted(() => bounded(String(thrown)), `a thrown ${typeof thrown} that has no text`);
}

function causeOf(thrown: unknown): { readonly value: unknown } | undefined {
  const value = attempted(() => (thrown instanceof Error ? thrown.cause : undefined), undefined);
  return value === undefined ? undefined : { value };
}

function partsOf(error: Error): readonly unknown[] {
  return attempted(
    () => (error instanceof AggregateError ? Array.from(error.errors.slice(0, partsMax) as unknown[]) : []),
    [],
  );
}

/** Long texts are cut before anything else is done with them. */
function bounded(text: string): string {
  return text.slice(0, charactersMax);
}

/** PostgreSQL's text holds neither NUL nor half of a character. */
function storable(text: string): string {
  const cut = bounded(text.replaceAll('\0', ''));
  // The cut itself may have halved a character.
  const whole = cut.length === charactersMax && isHighSurrogate(cut) ? cut.slice(0, -1) : cut;
  return whole.toWellFormed();
}

function isHighSurrogate(text: string): boolean {
  const last = text.charCodeAt(text.length - 1);
  return last >= 0xd800 && last <= 0xdbff;
}

function attempted<T>(work: () => T, otherwise: T): T {
  try {
    return work();
  } catch {
    return otherwise;
  }
}
