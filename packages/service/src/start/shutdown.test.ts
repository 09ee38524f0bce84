import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { Shutdown } from './shutdown.js';

const exits: unknown[] = [];
const said: string[] = [];
/** Emits signals in place of the process. */
const signals = new EventEmitter();

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(process, 'exit').mockImplementation(((code: unknown) => void exits.push(code)) as never);
  // Otherwise the listeners would affect the tests that follow.
  vi.spyOn(process, 'on').mockImplementation((event, listener) => {
    signals.on(event, listener);
    return process;
  });
});
afterEach(() => {
  vi.restoreAllMocks();
  signals.removeAllListeners();
  vi.useRealTimers();
  exits.length = 0;
  said.length = 0;
});

function shutdown(timeoutMs = 1_000): Shutdown {
  return new Shutdown(process, { timeoutMs, say: (line) => said.push(line) });
}

describe('the shutdown of a process', () => {
  test('closes resources in reverse order of opening, one after the other', async () => {
    const closed: string[] = [];
    const ending = shutdown();
    for (const what of ['server', 'databases', 'service']) {
      ending.add(async () => {
        closed.push(`${what} closes`);
        await Promise.resolve();
        closed.push(`${what} is closed`);
      });
    }
    await ending.exit(0);
    expect(closed).toEqual([
      'service closes',
      'service is closed',
      'databases closes',
      'databases is closed',
      'server closes',
      'server is closed',
    ]);
    expect(exits).toEqual([0]);
  });

  test('continues after a step that fails, and reports it in the exit code', async () => {
    const closed: string[] = [];
    const ending = shutdown();
    ending.add(async () => void closed.push('server'));
    ending.add(() => Promise.reject(new Error('no')));
    await ending.exit(0);
    expect([closed, exits, said]).toEqual([['server'], [1], ['Error while stopping: Error: no']]);
  });

  test('also closes what is opened during the shutdown, and closes nothing twice', async () => {
    const closed: string[] = [];
    const ending = shutdown();
    ending.add(async () => void closed.push('log'));
    const databases = Promise.withResolvers<void>();
    ending.add(() => {
      closed.push('databases');
      return databases.promise;
    });
    const exit = ending.exit(0);
    ending.add(async () => void closed.push('service'));
    databases.resolve();
    await exit;
    expect([closed, exits]).toEqual([['databases', 'service', 'log'], [0]]);
  });

  test('counts signals within the first second as one, and exits at once on a later one', async () => {
    const ending = shutdown(60_000);
    let count = 0;
    ending.add(() => {
      count++;
      return new Promise(() => undefined);
    });
    signals.emit('SIGINT');
    await vi.advanceTimersByTimeAsync(999);
    signals.emit('SIGINT');
    signals.emit('SIGTERM');
    expect([count, exits]).toEqual([1, []]);
    await vi.advanceTimersByTimeAsync(1);
    signals.emit('SIGTERM');
    expect([count, exits]).toEqual([1, [1]]);
  });

  test('is cut short when a step takes too long', async () => {
    const ending = shutdown();
    ending.add(() => new Promise(() => undefined));
    void ending.exit(0);
    await vi.advanceTimersByTimeAsync(1_000);
    expect([exits, said]).toEqual([[1], ['Stopping took longer than 1000 ms: exiting now']]);
  });
});
