import { FrameworkException } from './framework-exception.js';

/** A handler did not return within its `timeoutMs`: its signal was aborted, and the attempt counts as failed. */
export class HandlerTimeoutException extends FrameworkException {
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
