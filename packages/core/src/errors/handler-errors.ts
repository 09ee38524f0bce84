import { FrameworkError } from './framework-error.js';

/**
 * The names of a handler do not identify it in a database: they belong to several handlers there, or to one that has the
 * names of another handler of the process as well.
 */
export class HandlerNamesError extends FrameworkError {
  /** The durable name that the handler declares. */
  readonly handler: string;
  /** The permanent ids of the handlers that its names belong to. */
  readonly handlers: readonly string[];
  /**
   * The durable name of another handler in the process whose names belong to the same id; `undefined` if there is none.
   */
  readonly other: string | undefined;

  constructor(handler: string, handlers: readonly string[], other?: string) {
    super(
      'handler-names',
      other === undefined
        ? `The names of ${handler} belong to ${handlers.length} handlers, ${handlers.join(' and ')}, which have separate cursors: list only names that this handler has had`
        : `The names of ${handler} and ${other} belong to one handler, ${handlers.join(' and ')}, which keeps its old names after a rename: give the newer handler a name that no handler has had`,
    );
    this.handler = handler;
    this.handlers = handlers;
    this.other = other;
  }
}

/** A handler cannot be retired because something still depends on it. */
export class HandlerInUseError extends FrameworkError {
  /** The handler's permanent id. */
  readonly handler: string;

  /** @param reason what depends on it, and what to do */
  constructor(handler: string, reason: string) {
    super('handler-in-use', `${handler} cannot be retired: ${reason}`);
    this.handler = handler;
  }

  /**
   * The error for a handler that a process has, for adapters.
   *
   * @param process.late whether the process is late in renewing its leases, so that it may have ended
   */
  static by(
    handler: string,
    { processId, late }: { readonly processId: string; readonly late: boolean },
  ): HandlerInUseError {
    const reason = late
      ? `process ${processId} has it, but is late in renewing its leases. Stop the process or, if it has ended, try again when its leases have run out`
      : `process ${processId} still has it. Stop that process first`;
    return new HandlerInUseError(handler, reason);
  }
}

/** No database knows a handler with this name. */
export class UnknownHandlerError extends FrameworkError {
  /** The name that was requested. */
  readonly handler: string;

  constructor(handler: string) {
    super(
      'unknown-handler',
      `No handler has or had the name ${handler}: use one that lag() lists, or one of its aliases`,
    );
    this.handler = handler;
  }
}

/** A handler did not return within its `timeoutMs`. Its signal was aborted, and the attempt counts as failed. */
export class HandlerTimeoutError extends FrameworkError {
  /** The handler's durable name. */
  readonly handler: string;
  /** How long the handler may take. */
  readonly timeoutMs: number;

  constructor(handler: string, timeoutMs: number) {
    super(
      'handler-timeout',
      `${handler} did not return within ${timeoutMs} ms: pass its signal on to everything it waits for, or raise timeoutMs`,
    );
    this.handler = handler;
    this.timeoutMs = timeoutMs;
  }
}

/**
 * Thrown by a handler that cannot handle an event now through no fault of the event, such as while a third party is down or asks for
 * fewer requests: the event is delivered again later, and no attempt is counted, however often that happens. Later events of its
 * model wait meanwhile.
 *
 * A batch handler that throws it postpones the whole batch. To postpone single events, throw a `PartialBatchError` that has one of
 * these errors for each.
 */
export class RetryLaterError extends FrameworkError {
  /** The longest wait that a handler can ask for, in milliseconds: a day. */
  static readonly afterMaxMs: number = 86_400_000;
  /**
   * The shortest time until the next call, in milliseconds; `undefined` leaves it to the backoff of outages, which is at most 5 s.
   */
  readonly afterMs: number | undefined;

  /**
   * @param options.afterMs such as the `Retry-After` of an HTTP response; from 0 to 86,400,000, a day: more counts as a day.
   * Default: the backoff of outages
   * @param options.message why, for operators. Default: a text with the wait
   * @throws RangeError when `afterMs` is negative or not a number
   */
  constructor({
    afterMs,
    message = 'The handler has asked to be called again later',
    cause,
  }: { readonly afterMs?: number | undefined; readonly message?: string; readonly cause?: unknown } = {}) {
    super('retry-later', message, cause === undefined ? undefined : { cause });
    if (afterMs !== undefined && !(afterMs >= 0))
      throw new RangeError(
        `afterMs is ${afterMs}: pass a number of milliseconds from 0 to ${RetryLaterError.afterMaxMs}`,
      );
    this.afterMs = afterMs === undefined ? undefined : Math.min(afterMs, RetryLaterError.afterMaxMs);
  }
}

/** A relay's broker cannot be reached, or does not confirm messages. The log keeps the events, and they are published later. */
export class BrokerUnavailableError extends FrameworkError {
  /** The relay's durable name. */
  readonly relay: string;

  constructor(relay: string, options: { readonly cause: unknown }) {
    super(
      'broker-unavailable',
      `The broker of relay ${relay} does not confirm messages: start it, or correct its address`,
      options,
    );
    this.relay = relay;
  }
}

/** A broker will never accept a message as it is. The event is a dead letter, and later events of its model wait behind it. */
export class MessageRefusedError extends FrameworkError {
  /** The relay's durable name. */
  readonly relay: string;
  /** Why it was refused, in the broker's words. */
  readonly reason: string;

  constructor(relay: string, reason: string) {
    super(
      'message-refused',
      `The broker of relay ${relay} refuses the message: ${reason}. Correct the broker and replay the event, or skip it`,
    );
    this.relay = relay;
    this.reason = reason;
  }
}

/** An operator's request is refused, or its events are gone before it has ended; the message says what to do. */
export class OperatorRequestError extends FrameworkError {
  constructor(message: string) {
    super('operator-request', message);
  }
}
