import { once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { leftBehind } from '../../core/test/left-behind.js';
import { FaultProxy } from './fault-proxy.js';

describe('FaultProxy', () => {
  let received: string[];
  let target: ReturnType<typeof createServer>;
  let proxy: FaultProxy;

  beforeEach(async () => {
    received = [];
    target = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.on('data', (bytes) => {
        received.push(bytes.toString());
        socket.write(`echo ${bytes.toString()}`);
      });
    });
    target.listen(0, '127.0.0.1');
    await once(target, 'listening');
    proxy = await FaultProxy.to({ host: '127.0.0.1', port: (target.address() as AddressInfo).port });
  });

  afterEach(async () => {
    await proxy.close();
    target.close();
  });

  test('forwards data in both directions', async () => {
    expect(await answer(open(proxy), 'hello')).toBe('echo hello');
    expect(proxy.connectionCount).toBe(1);
  });

  test('leaves no connection behind when either end leaves, or a connection is cut', async () => {
    const left = await leftBehind(
      async () => {
        const client = open(proxy);
        await answer(client, 'hello');
        client.end();
        await once(client.resume(), 'close');
        proxy.judge = () => 'cut';
        expect(await answer(open(proxy), 'bad')).toBe('ended');
        proxy.judge = () => 'forward';
      },
      { patienceMs: 2_000 },
    );
    expect(left).toEqual([]);
  });

  test('can cut a connection before the server sees the bytes', async () => {
    proxy.judge = ({ bytes }) => (bytes.includes('bad') ? 'cut' : 'forward');
    const client = open(proxy);
    expect(await answer(client, 'good')).toBe('echo good');
    expect(await answer(client, 'bad')).toBe('ended');
    expect(received).toEqual(['good']);
  });

  test('can cut a connection after the server received the bytes, before its answer returns', async () => {
    proxy.judge = ({ direction }) => (direction === 'to-server' ? 'forward-and-cut' : 'forward');
    const arrived = once(target, 'connection').then(async ([socket]) => once(socket as Socket, 'end'));
    expect(await answer(open(proxy), 'last words')).toBe('ended');
    await arrived;
    expect(received).toEqual(['last words']);
  });

  test('holds back all data while it is silent, even on new connections', async () => {
    const client = open(proxy);
    await answer(client, 'before');
    proxy.silence();
    const late = open(proxy);
    client.write('one');
    late.write('two');
    await once(late, 'connect');
    expect(received).toEqual(['before']);
    const answers = Promise.all([once(client, 'data'), once(late, 'data')]);
    proxy.resume();
    expect((await answers).map(([bytes]) => String(bytes))).toEqual(['echo one', 'echo two']);
  });

  test('holds back the end of a connection while silent, even one sent with the last bytes', async () => {
    const connected = once(target, 'connection');
    const client = open(proxy);
    const [socket] = (await connected) as [Socket];
    const onEnd = vi.fn<() => void>();
    socket.on('end', onEnd);
    const judged = Promise.withResolvers<void>();
    proxy.judge = () => {
      proxy.silence();
      judged.resolve();
      return 'drop';
    };
    client.end('goodbye');
    await judged.promise;
    await new Promise(setImmediate);
    expect(onEnd).not.toHaveBeenCalled();
    proxy.resume();
    await vi.waitFor(() => expect(onEnd).toHaveBeenCalled());
    expect(received).toEqual([]);
  });

  test.each(['close', 'reset'] as const)('ends connections with a %s', async (manner) => {
    const client = open(proxy);
    await answer(client, 'hello');
    const ended = new Promise((resolve) => client.once('close', resolve));
    proxy.cut(manner);
    expect(await ended).toBe(manner === 'reset');
  });

  test('refuses connections until it accepts them again on the same port', async () => {
    await proxy.refuse();
    const refused = await new Promise((resolve) => open(proxy).once('error', resolve));
    expect(refused).toMatchObject({ code: 'ECONNREFUSED' });
    await proxy.accept();
    expect(await answer(open(proxy), 'again')).toBe('echo again');
  });
});

function open(proxy: FaultProxy): Socket {
  const socket = connect({ host: proxy.host, port: proxy.port });
  socket.on('error', () => undefined);
  return socket;
}

/** The answer to the text, or `ended` if the connection ended instead. */
function answer(socket: Socket, text: string): Promise<string> {
  return new Promise((resolve) => {
    socket.once('data', (bytes) => resolve(bytes.toString()));
    socket.once('close', () => resolve('ended'));
    socket.write(text);
  });
}
