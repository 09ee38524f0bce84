import { parseFrameworkConfig } from '@framework/core';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';

import { certificateFiles, testCertificate } from '../../http/test/test-tls.js';
import { openService } from '../src/open-service.js';
import type { Application, ServedApi } from '../src/service-definition.js';
import { type RunningService, startService } from '../src/start/start-service.js';
import { configTree, helpDesk } from './help-desk.js';

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

const logger = pino({ level: 'silent' });

function start(
  serve?: () => Promise<ServedApi>,
  sections: object = {},
  shutdownTimeoutMs?: number,
): Promise<RunningService> {
  const config = parseFrameworkConfig(configTree(database.url, sections));
  const definition = { ...helpDesk, http: { ...helpDesk.http, ...(serve && { serve }) } };
  return startService(definition, {
    config,
    port: 0,
    logger,
    ...(shutdownTimeoutMs && { shutdownTimeoutMs }),
  });
}

/** A port on which something listens. */
async function takenPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

const url = 'http://127.0.0.1:1';

const failToClose = (): Promise<void> => Promise.reject(new Error('close failed'));

const throwAtOnce = (): never => {
  throw new Error('close failed');
};

test.each([
  ['rejects', failToClose],
  ['throws at once', throwAtOnce],
])('everything is closed although close of the application %s', async (_how, close) => {
  const running = await start(async () => ({ url, close }), { metrics: { port: 0 } });
  await running.service.databases.ready();
  const stopDelivery = vi.spyOn(running.service.delivery, 'stop');
  await expect(running.stop()).rejects.toThrow('close failed');
  expect(stopDelivery).toHaveBeenCalledTimes(1);
  await expect(fetch(running.metricsUrl ?? '')).rejects.toThrow('fetch failed');
  await expect(running.service.databases.ready()).rejects.toMatchObject({ code: 'databases-closed' });
});

test.each([
  ['metrics', async () => ({ metrics: { port: await takenPort() } })],
  ['operators', async () => ({ operator: { port: await takenPort(), token: 'x'.repeat(32) } })],
])('a start that fails because the port for %s is in use closes the server', async (_whom, sectionsOf) => {
  const close = vi.fn<() => Promise<void>>(async () => undefined);
  await expect(start(async () => ({ url, close }), await sectionsOf())).rejects.toThrow('EADDRINUSE');
  expect(close).toHaveBeenCalledTimes(1);
});

const hang = (): Promise<void> => new Promise(() => undefined);

test('a start that fails says why although close of the application hangs', async () => {
  const sections = { metrics: { port: await takenPort() } };
  await expect(start(async () => ({ url, close: hang }), sections, 100)).rejects.toThrow('EADDRINUSE');
});

test('a mistake in the section for operators ends the start before anything listens', async () => {
  const serve = vi.fn<() => Promise<ServedApi>>();
  await expect(start(serve, { operator: { port: 'x' } })).rejects.toThrow(/operator\.port/);
  expect(serve).not.toHaveBeenCalled();
});

test('a server of the application is refused if it answers without the TLS that is configured', async () => {
  const { section, remove } = await certificateFiles(await testCertificate());
  onTestFinished(remove);
  const close = vi.fn<() => Promise<void>>(async () => undefined);
  await expect(start(async () => ({ url, close }), { http: { tls: section } })).rejects.toThrow(
    /framework\.http\.tls: is configured, but http\.serve listens at http:/,
  );
  expect(close).toHaveBeenCalledTimes(1);
});

test.each([
  ['nothing', () => undefined],
  ['a promise', () => Promise.reject(new Error('late'))],
  ['no actions', () => ({ repositories: [] })],
])('an application that compose does not return is refused: %s', async (_what, compose) => {
  const config = parseFrameworkConfig(configTree(database.url));
  const definition = { ...helpDesk, compose: compose as unknown as () => Application };
  expect(() => openService(definition, config)).toThrow(/compose must return repositories and actions/);
});

const composeDelivery: typeof helpDesk.compose = (context) => ({
  ...helpDesk.compose(context),
  delivery: {},
});

test('an application whose part has a name of the framework is refused', async () => {
  const config = parseFrameworkConfig(configTree(database.url));
  expect(() => openService({ ...helpDesk, compose: composeDelivery }, config)).toThrow(
    /^compose returns delivery, but/,
  );
});

const serveNothing = (): Promise<ServedApi> => Promise.resolve(undefined as unknown as ServedApi);

test('a server of the application that does not say where it listens is closed', async () => {
  const close = vi.fn<() => Promise<void>>(async () => undefined);
  const served = { close } as unknown as ServedApi;
  await expect(start(async () => served)).rejects.toThrow(/http\.serve must resolve to the url/);
  expect(close).toHaveBeenCalledTimes(1);
});

test('a server of the application must say where it listens', async () => {
  await expect(start(serveNothing)).rejects.toThrow(/http\.serve must resolve to the url/);
});
