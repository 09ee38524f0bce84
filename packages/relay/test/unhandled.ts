import { setImmediate as turn } from 'node:timers/promises';
import { onTestFinished } from 'vitest';

/**
 * Collects the rejections that nothing handles, until the test is over.
 *
 * @returns reads them, after every promise that is settled by then has been looked at
 */
export function unhandledRejections(): () => Promise<readonly unknown[]> {
  const found: unknown[] = [];
  const note = (reason: unknown): void => void found.push(reason);
  process.on('unhandledRejection', note);
  onTestFinished(() => void process.off('unhandledRejection', note));
  return async () => {
    await turn();
    return found;
  };
}
