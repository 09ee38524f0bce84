import { Socket } from 'node:net';

/**
 * Sends what is written within one turn of the event loop by one call of the operating system.
 *
 * Waking the server costs more than writing a statement does; statements that are sent together wake it once.
 */
export class BatchingSocket extends Socket {
  #isHeld = false;

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
