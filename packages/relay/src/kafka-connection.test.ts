import type { Connection } from '@platformatic/kafka';
import { EventEmitter } from 'node:events';
import { describe, expect, test, vi } from 'vitest';

import { guard, socketOf } from './kafka-connection.js';

const authenticate = 36;
const timerMsMax = 2n ** 31n - 1n;

class ScriptedSocket extends EventEmitter {
  readonly destroy = vi.fn<(error?: Error) => void>();
}

type Parse = (...answer: readonly unknown[]) => { readonly sessionLifetimeMs?: bigint };

/** A connection that has a socket only after it was guarded, as those of the client. */
class ScriptedConnection extends EventEmitter {
  socket: ScriptedSocket | undefined;
  readonly close = vi.fn<(callback: () => void) => void>();
  /** How it parses the answer to the last request. */
  parse: Parse = () => ({});

  send(_key: number, _version: number, _payload: unknown, parse: Parse): void {
    this.parse = parse;
  }

  asConnection(): Connection {
    return this as unknown as Connection;
  }
}

async function guarded() {
  const connection = new ScriptedConnection();
  guard(connection.asConnection());
  const socket = new ScriptedSocket();
  connection.socket = socket;
  await Promise.resolve();
  return { connection, socket };
}

describe('a guarded connection', () => {
  test('is closed on both ends when it has failed, and its error ends no process', async () => {
    const { connection, socket } = await guarded();
    expect(() => connection.emit('error', new Error('reset'))).not.toThrow();
    expect(socket.destroy).toHaveBeenCalledTimes(1);
  });

  test('may fail before it has a socket', () => {
    const connection = new ScriptedConnection();
    guard(connection.asConnection());
    expect(() => connection.emit('error', new Error('refused'))).not.toThrow();
    expect(socketOf(connection.asConnection())).toBeUndefined();
  });

  test('is closed for the client when the server has closed it', async () => {
    const { connection } = await guarded();
    connection.emit('close');
    expect(connection.close).toHaveBeenCalledTimes(1);
    expect(() => connection.close.mock.calls[0]?.[0]()).not.toThrow();
  });

  test('is destroyed with the error that a handler of its socket throws, and the process goes on', async () => {
    const { socket } = await guarded();
    const unreadable = new Error('unreadable frame');
    socket.on('data', () => {
      throw unreadable;
    });
    expect(socket.emit('data', Buffer.alloc(1))).toBe(true);
    expect(socket.destroy.mock.calls).toEqual([[unreadable]]);
  });

  test('passes events of its socket on, and says whether anything listens', async () => {
    const { socket } = await guarded();
    const listener = vi.fn<(...given: readonly unknown[]) => void>();
    socket.on('data', listener);
    expect(socket.emit('data', 1, 2)).toBe(true);
    expect(listener.mock.calls).toEqual([[1, 2]]);
    expect(socket.emit('drain')).toBe(false);
    expect(socket.destroy).not.toHaveBeenCalled();
  });

  test.each([
    [0n, 0n],
    [1n, 1n],
    [timerMsMax - 1n, timerMsMax - 1n],
    [timerMsMax, timerMsMax],
    [timerMsMax + 1n, timerMsMax],
    [2n ** 62n, timerMsMax],
  ])('has a session of %s ms as one of %s ms, which a timer can wait', async (given, limited) => {
    const { connection } = await guarded();
    connection.send(authenticate, 2, undefined, () => ({ sessionLifetimeMs: given }));
    expect(connection.parse()).toEqual({ sessionLifetimeMs: limited });
  });

  test('leaves other answers, and those without a session, as they are', async () => {
    const { connection } = await guarded();
    const answer = { sessionLifetimeMs: 2n ** 62n };
    for (const key of [0, 3, 17, 18, 35, 37]) {
      connection.send(key, 1, undefined, () => answer);
      expect(connection.parse()).toBe(answer);
    }
    const parse = vi.fn<Parse>(() => ({}));
    connection.send(authenticate, 2, undefined, parse);
    expect(connection.parse(1, 2)).toBe(parse.mock.results[0]?.value);
    expect(parse.mock.calls).toEqual([[1, 2]]);
  });
});
