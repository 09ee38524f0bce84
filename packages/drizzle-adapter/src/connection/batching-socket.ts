import { Socket, type SocketConnectOpts } from 'node:net';
import { outsideRequests } from '@framework/core';
import { sharedLookup } from './shared-lookup.js';

/**
 * Sends what is written within one turn of the event loop by one call of the operating system, and looks names up by
 * {@link sharedLookup}.
 *
 * Waking the server costs more than writing a statement does; statements that are sent together wake it once.
 *
 * What comes in runs outside the async context of any request, because the connection outlives the request that needed it
 * first.
 */
export class BatchingSocket extends Socket {
  #isHeld = false;

  /** Takes what {@link Socket.connect} takes. */
  override connect(...args: unknown[]): this {
    const [port, host] = args;
    const isNamed = typeof port === 'number' && typeof host === 'string';
    const target = isNamed ? [{ port, host, lookup: sharedLookup }] : args;
    return outsideRequests(() => super.connect(...(target as [SocketConnectOpts])));
  }

  /** Called before the parts of each statement are written. */
  override cork(): void {
    super.cork();
    if (this.#isHeld) return;
    this.#isHeld = true;
    super.cork();
    process.nextTick(() => {
      this.#isHeld = false;
      this.uncork();
    });
  }
}
