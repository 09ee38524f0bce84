/** A handler did not return within its `timeoutMs`: its signal was aborted, and the attempt counts as failed. */
export class HandlerTimeout extends Error {
  constructor(handler: string, timeoutMs: number) {
    super(
      `${handler} did not return within ${timeoutMs} ms: pass its signal on to what it waits for, or raise timeoutMs`,
    );
    this.name = 'HandlerTimeout';
  }
}
