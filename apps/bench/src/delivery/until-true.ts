import { setTimeout as pause } from 'node:timers/promises';

const pollMs = 20;
const timeoutMs = 120_000;

/** Waits for a condition; a benchmark whose work does not end fails. */
export async function untilTrue(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const endsAtMs = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() >= endsAtMs) throw new Error(`Not within ${timeoutMs} ms: ${what}`);
    await pause(pollMs);
  }
}
