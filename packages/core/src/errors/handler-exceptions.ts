import { FrameworkException } from './framework-exception.js';

/** The names and aliases that one handler lists belong to several handlers of the database. */
export class HandlerNamesException extends FrameworkException {
  /** The durable name that the handler declares. */
  readonly handler: string;
  /** The permanent ids of the handlers to which its names belong. */
  readonly handlers: readonly string[];

  constructor(handler: string, handlers: readonly string[]) {
    super(
      'handler-names',
      `The names of ${handler} belong to ${handlers.length} handlers, ${handlers.join(' and ')}, which have cursors of their own: list only the names that this one had`,
    );
    this.handler = handler;
    this.handlers = handlers;
  }
}

/** A handler cannot be retired, because something still depends on it. */
export class HandlerInUseException extends FrameworkException {
  /** The handler's permanent id. */
  readonly handler: string;

  /** @param reason what depends on it, and what to do */
  constructor(handler: string, reason: string) {
    super('handler-in-use', `${handler} cannot be retired: ${reason}`);
    this.handler = handler;
  }
}

/** No database knows a handler of this name. */
export class UnknownHandlerException extends FrameworkException {
  /** The name that was asked for. */
  readonly handler: string;

  constructor(handler: string) {
    super(
      'unknown-handler',
      `No handler has or had the name ${handler}: take one that lag() lists, or one of its aliases`,
    );
    this.handler = handler;
  }
}
