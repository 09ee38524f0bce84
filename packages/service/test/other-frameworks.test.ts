// oxlint-disable-next-line import/no-unassigned-import -- NestJS needs it
import 'reflect-metadata';
import { parseFrameworkConfig } from '@framework/core';
import type { HttpApi } from '@framework/http';
import { httpPlugin } from '@framework/http/fastify';
import { HttpApiModule, ProblemFilter } from '@framework/http/nest';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import Fastify from 'fastify';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type Socket, createConnection } from 'node:net';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';

import type { ServeOptions, ServedApi } from '../src/service-definition.js';
import { type RunningService, startService } from '../src/start/start-service.js';
import { NoteClosed, OpenTicketAction, configTree, helpDesk } from './help-desk.js';

async function serveWithFastify(api: HttpApi, options: ServeOptions): Promise<ServedApi> {
  const { host, port, limits, settings } = options;
  const app = Fastify({ trustProxy: [...settings.trustedProxies] });
  await app.register(httpPlugin(api, limits));
  const url = await app.listen({ host, port });
  return { url, server: app.server, close: () => app.close() };
}

async function serveWithNest(api: HttpApi, options: ServeOptions): Promise<ServedApi> {
  const { host, port, limits, settings } = options;
  const module = HttpApiModule.forRoot(api, limits);
  const app = await NestFactory.create<NestExpressApplication>(module, { bodyParser: false, logger: false });
  app.set('trust proxy', [...settings.trustedProxies]);
  app.useGlobalFilters(new ProblemFilter(api));
  await app.listen(port, host);
  return { url: await app.getUrl(), server: app.getHttpServer(), close: () => app.close() };
}

function send(
  { url }: RunningService,
  path: string,
  { key, body }: { readonly key?: string; readonly body?: object } = {},
): Promise<Response> {
  const headers = { 'content-type': 'application/json', ...(key && { 'idempotency-key': key }) };
  return fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body ?? {}) });
}

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

/** A connection with which a client says something, or nothing. */
async function connect({ url = '' }: RunningService, text: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = createConnection(Number(port), hostname);
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  if (text !== '') socket.write(text);
  return socket;
}

const silences = [
  '',
  'GET /health/live HTTP/1.1\r\nHost:',
  'POST /tickets HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{',
];

describe.each([
  ['Hono', undefined],
  ['Fastify', serveWithFastify],
  ['NestJS', serveWithNest],
])('a service on %s', (_framework, serve) => {
  async function start(sections?: object): Promise<RunningService> {
    const config = parseFrameworkConfig(configTree(database.url, sections));
    const definition = { ...helpDesk, http: { ...helpDesk.http, ...(serve && { serve }) } };
    const options = { config, port: 0, logger: pino({ level: 'silent' }) };
    const running = await startService(definition, options);
    await running.service.databases.ready();
    await running.service.delivery.started();
    return running;
  }

  test('stores keys with effects, answers problems, describes itself, and delivers', async () => {
    const running = await start();
    onTestFinished(() => running.stop());
    const [key, subject] = [randomUUID(), randomUUID()];
    const first = await send(running, '/tickets', { key, body: { subject } });
    const repeated = await send(running, '/tickets', { key, body: { subject } });
    const ticket = (await first.json()) as { readonly id: string };
    expect([await repeated.json(), repeated.headers.get('idempotency-replayed')]).toEqual([ticket, 'true']);

    expect((await send(running, `/tickets/${ticket.id}/close`)).status).toBe(200);
    const again = await send(running, `/tickets/${ticket.id}/close`);
    expect([again.status, again.headers.get('content-type')]).toEqual([409, 'application/problem+json']);
    expect(await again.json()).toMatchObject({
      type: 'urn:problem-type:help-desk-service:ticket-closed',
      code: 'ticket-closed',
    });
    await expect.poll(() => NoteClosed.subjects).toContain(subject);

    const openApi = (await (await fetch(`${running.url}/openapi.json`)).json()) as { readonly paths: object };
    expect(Object.keys(openApi.paths)).toEqual(expect.arrayContaining(['/tickets', '/tickets/{id}/close']));
    const asyncApi = await (await fetch(`${running.url}/asyncapi.json`)).json();
    expect(asyncApi).toMatchObject({ info: { title: 'Events of the help desk' } });
    expect((await fetch(`${running.url}/health/ready`)).status).toBe(200);
  });

  test('answers the requests that run before it has stopped', async () => {
    const running = await start();
    const gate = Promise.withResolvers<void>();
    const reached = Promise.withResolvers<void>();
    OpenTicketAction.gate = () => {
      reached.resolve();
      return gate.promise;
    };
    const answer = send(running, '/tickets', { body: { subject: 'in the middle' } });
    await reached.promise;
    const stopped = running.stop();
    OpenTicketAction.gate = undefined;
    setImmediate(gate.resolve);
    const { status, headers } = await answer;
    // Otherwise the server would wait for a client that keeps its connection.
    expect([status, headers.get('connection')]).toEqual([200, 'close']);
    await stopped;
    await expect(fetch(`${running.url}/health/live`)).rejects.toThrow('fetch failed');
  });

  test('stops although clients hold connections on which nothing runs', async () => {
    const running = await start();
    for (const text of silences) await connect(running, text);
    // What was sent before was read when a later request is answered.
    expect((await fetch(`${running.url}/health/live`)).status).toBe(200);
    const begunMs = performance.now();
    await running.stop();
    // Node's server alone would wait for them without end.
    expect(performance.now() - begunMs).toBeLessThan(30_000);
  });

  test('accepts bodies up to the limit that is configured, and refuses longer ones', async () => {
    const running = await start({ http: { limits: { bodyBytesMax: 300_000 } } });
    onTestFinished(() => running.stop());
    const statuses = [];
    for (const length of [200_000, 400_000]) {
      const answer = await send(running, '/tickets', { body: { subject: 'x', extra: 'x'.repeat(length) } });
      statuses.push(answer.status);
    }
    // The first one has a field that is not known.
    expect(statuses).toEqual([400, 413]);
  });

  test('counts all addresses of an IPv6 network as one client', async () => {
    const limits = { perAddress: { requests: 2, seconds: 60 } };
    const running = await start({ http: { limits, trustedProxies: ['127.0.0.1'] } });
    onTestFinished(() => running.stop());
    const statuses = [];
    for (let host = 1; host <= 3; host++) {
      const headers = { 'x-forwarded-for': `2001:db8:0:1::${host}` };
      statuses.push((await fetch(`${running.url}/health/live`, { headers })).status);
    }
    expect(statuses).toEqual([200, 200, 429]);
  });

  test('counts no requests of an address that is not limited', async () => {
    const http = { limits: { perAddress: { requests: 1, seconds: 60 } } };
    const running = await start({ http });
    onTestFinished(() => running.stop());
    const statuses = [];
    for (let count = 0; count < 3; count++) statuses.push((await fetch(`${running.url}/health/live`)).status);
    expect(statuses).toEqual([200, 200, 200]);
  });
});
