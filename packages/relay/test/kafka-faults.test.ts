import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';

import type { Broker } from '../src/index.js';
import { type KafkaOptions, kafka } from '../src/kafka.js';
import { type Script, ScriptedKafka, apis, authenticating, frame, int16, int32 } from './scripted-kafka.js';
import { user } from './secured-kafka.js';

const timeoutMs = 300;

/** A broker whose only server follows a script. */
async function brokerOf(script: Script, client: KafkaOptions['client'] = {}): Promise<Broker> {
  const server = await ScriptedKafka.start(script);
  onTestFinished(() => server.close());
  const broker = kafka({ bootstrapServers: [server.address], timeoutMs, client });
  onTestFinished(() => broker.close());
  return broker;
}

/** What would end the process if a test did not run in it. */
function uncaughtErrors(): readonly Error[] {
  const uncaught: Error[] = [];
  const note = (error: Error): void => void uncaught.push(error);
  process.on('uncaughtExceptionMonitor', note);
  onTestFinished(() => void process.off('uncaughtExceptionMonitor', note));
  return uncaught;
}

/** The sockets that clients open from now on. */
function openedSockets(): ReadonlySet<Socket> {
  const opened = new Set<Socket>();
  const note = (message: unknown): void => void opened.add((message as { readonly socket: Socket }).socket);
  subscribe('net.client.socket', note);
  onTestFinished(() => void unsubscribe('net.client.socket', note));
  return opened;
}

const plain = { sasl: { mechanism: 'PLAIN', ...user } } as const;
const scram = { sasl: { mechanism: 'SCRAM-SHA-256', ...user } } as const;
const unused: Script = () => undefined;

test.each<[string, Script, KafkaOptions['client']]>([
  ['a frame of no bytes', (_request, socket) => socket.write(Buffer.from([0, 0, 0, 0, 1])), {}],
  ['a frame of three bytes', (_request, socket) => socket.write(Buffer.from([0, 0, 0, 3, 1, 2, 3])), {}],
  [
    'a frame of less than no bytes',
    ({ correlationId }, socket) => socket.write(int32(-5, correlationId)),
    {},
  ],
  ['the answer to another request', (_request, socket) => socket.write(frame(12_345, int32(0, 0))), {}],
  ['what is no SCRAM', authenticating({ authBytes: 'nonsense' }, unused), scram],
  ['SCRAM without a nonce', authenticating({ authBytes: 's=QQ==,i=4096' }, unused), scram],
  ['a reset', (_request, socket) => socket.resetAndDestroy(), plain],
])('a server that sends %s ends no process', async (_what, script, client) => {
  const uncaught = uncaughtErrors();
  const opened = openedSockets();
  const broker = await brokerOf(script, client);
  await expect(broker.ping()).rejects.toBeInstanceOf(Error);
  await broker.close();
  await expect.poll(() => [...opened].filter(({ destroyed }) => !destroyed)).toEqual([]);
  expect(uncaught).toEqual([]);
});

test('a connection that has failed is closed, although the server leaves it open', async () => {
  const opened = openedSockets();
  const unsupportedMechanism = 33;
  const refusing: Script = (request, socket) => {
    if (request.api === apis.saslHandshake)
      socket.write(frame(request.correlationId, int16(unsupportedMechanism), int32(0)));
    else authenticating({}, unused)(request, socket);
  };
  const broker = await brokerOf(refusing, plain);
  await expect(broker.ping()).rejects.toThrow('mechanism');
  expect(opened.size).toBeGreaterThan(0);
  await expect.poll(() => [...opened].filter(({ destroyed }) => !destroyed)).toEqual([]);
});

test('a connection that the server has closed does not authenticate again', async () => {
  const sessionMs = 3_600_000;
  const set = vi.spyOn(globalThis, 'setTimeout');
  const cleared = [vi.spyOn(globalThis, 'clearTimeout'), vi.spyOn(globalThis, 'clearInterval')];
  onTestFinished(() => void vi.restoreAllMocks());
  const broker = await brokerOf(
    authenticating({ sessionMs }, (_request, socket) => socket.end()),
    plain,
  );
  await expect(broker.ping()).rejects.toBeInstanceOf(Error);
  await broker.close();
  const timers = set.mock.calls.flatMap(([, ms = 0], call) =>
    ms > sessionMs / 2 ? [set.mock.results[call]?.value as unknown] : [],
  );
  expect(timers.length).toBeGreaterThan(0);
  const ended = new Set<unknown>(cleared.flatMap(({ mock }) => mock.calls.map(([timer]) => timer)));
  expect(timers.filter((timer) => !ended.has(timer))).toEqual([]);
});
