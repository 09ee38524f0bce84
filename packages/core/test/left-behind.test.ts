import { EventEmitter, once } from 'node:events';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';

import { expect, onTestFinished, test } from 'vitest';

import { leftBehind, unhandledIn } from './left-behind.js';

const ignore = (): void => undefined;

test('rounds that clean up leave nothing behind', async () => {
  const [map, signal, emitter] = [
    new Map<number, number>(),
    new AbortController().signal,
    new EventEmitter(),
  ];
  const left = await leftBehind((number) => {
    map.set(number, number);
    signal.addEventListener('abort', ignore);
    emitter.on('end', ignore);
    clearTimeout(setTimeout(ignore, 60_000).unref());
    map.delete(number);
    signal.removeEventListener('abort', ignore);
    emitter.off('end', ignore);
  });
  expect(left).toEqual([]);
});

test.each<[what: string, add: (number: number) => unknown]>([
  ['entries of a map', addTo(new Map<number, number>(), (map, number) => map.set(number, number))],
  ['entries of a set', addTo(new Set<number>(), (set, number) => set.add(number))],
  [
    'listeners of a signal',
    addTo(new AbortController().signal, (signal) => {
      signal.addEventListener('abort', () => undefined);
    }),
  ],
  ['listeners of an emitter', addTo(new EventEmitter(), (emitter) => emitter.once('end', () => undefined))],
])('rounds that leave %s behind are found, with the line', async (_what, add) => {
  expect(await leftBehind(add)).toEqual([expect.stringContaining('left-behind.test.ts')]);
});

test('rounds that leave timers behind are found, even if those do not keep the process alive', async () => {
  const timers: NodeJS.Timeout[] = [];
  onTestFinished(() => timers.forEach((timer) => clearTimeout(timer)));
  const left = await leftBehind(() => timers.push(setTimeout(() => undefined, 60_000).unref()));
  expect(left).toEqual(Array.from({ length: 3 }, () => expect.stringContaining('left-behind.test.ts')));
});

test('rounds that leave connections behind are found, and those that close them are not', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const open: Socket[] = [];
  const round = async (isClosed: boolean): Promise<void> => {
    const accepted = once(server, 'connection') as Promise<[Socket]>;
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    const [other] = await accepted;
    if (!isClosed) return void open.push(socket, other);
    socket.destroy();
    await once(other.resume(), 'close');
  };
  expect(await leftBehind(() => round(true))).toEqual([]);
  expect((await leftBehind(() => round(false))).length).toBeGreaterThanOrEqual(3);
  for (const socket of open) socket.destroy();
  server.close();
});

test('a rejection that no caller handles is found, and a handled one is not', async () => {
  const reason = new Error('of no concern');
  expect(await unhandledIn(() => Promise.reject(reason).catch(() => undefined))).toEqual([]);
});

function addTo<Target>(target: Target, add: (target: Target, number: number) => unknown) {
  return (number: number): unknown => add(target, number);
}
