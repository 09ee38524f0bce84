import { FrameworkError } from './framework-error.js';

/** Names do not identify handlers in a database: those of one handler belong to several, or those of two to one. */
export class HandlerNamesError extends FrameworkError {
  /** The durable name that the handler declares. */
  readonly handler: string;
  /** The permanent ids of the handlers to which its names belong. */
  readonly handlers: readonly string[];
  /** The durable name of another handler of the process whose names belong to the same one; `undefined` when none does. */
  readonly other: string | undefined;

  constructor(handler: string, handlers: readonly string[], other?: string) {
    super(
      'handler-names',
      other === undefined
        ? `The names of ${handler} belong to ${handlers.length} handlers, ${handlers.join(' and ')}, which have cursors of their own: list only the names that this one had`
        : `The names of ${handler} and ${other} belong to one handler, ${handlers.join(' and ')}, whose names stay its own after a rename: give the newer one a name that no handler had`,
    );
    this.handler = handler;
    this.handlers = handlers;
    this.other = other;
  }
}

/** A handler cannot be retired, because something still depends on it. */
export class HandlerInUseError extends FrameworkError {
  /** The handler's permanent id. */
  readonly handler: string;

  /** @param reason what depends on it, and what to do */
  constructor(handler: string, reason: string) {
    super('handler-in-use', `${handler} cannot be retired: ${reason}`);
    this.handler = handler;
  }

  /** Says that a process has the handler, or that it had it and may only be late to say that it still does; for adapters. */
  static by(
    handler: string,
    { processId, late }: { readonly processId: string; readonly late: boolean },
  ): HandlerInUseError {
    const reason = late
      ? `process ${processId} has it and is late to renew its leases, stop it, or if it has ended already, try again when the time of a lease has passed`
      : `process ${processId} has it, stop that first`;
    return new HandlerInUseError(handler, reason);
  }
}

/** No database knows a handler of this name. */
export class UnknownHandlerError extends FrameworkError {
  /** The name that was requested. */
  readonly handler: string;

  constructor(handler: string) {
    super(
      'unknown-handler',
      `No handler has or had the name ${handler}: take one that lag() lists, or one of its aliases`,
    );
    this.handler = handler;
  }
}

/** A handler did not return within its `timeoutMs`: its signal was aborted, and the attempt counts as failed. */
export class HandlerTimeoutError extends FrameworkError {
  /** The handler's durable name. */
  readonly handler: string;
  /** How long it may take. */
  readonly timeoutMs: number;

  constructor(handler: string, timeoutMs: number) {
    super(
      'handler-timeout',
      `${handler} did not return within ${timeoutMs} ms: pass its signal on to what it waits for, or raise timeoutMs`,
    );
    this.handler = handler;
    this.timeoutMs = timeoutMs;
  }
}
