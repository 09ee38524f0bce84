import { jetstreamManager } from '@nats-io/jetstream';
import { connect as connectNats, credsAuthenticator, nkeys } from '@nats-io/transport-node';
import { connect as connectAmqp } from 'amqplib';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { type Server, createServer } from 'node:https';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';

import type { Broker } from '../../src/index.js';
import { openRelays } from '../../src/relay-config.js';
import { messageFor } from '../broker-suite.js';
import { type Certificates, makeCertificates } from '../certificates.js';
import { rabbitMqProgram, rabbitMqServer } from '../faults/own-rabbitmq.js';
import { OwnServer, freePort, programOf } from '../faults/own-server.js';
import { answerTo } from './answer.js';
import { makeAccounts } from './nats-accounts.js';

const natsCommand = await programOf('NATS', 'nats-server');
const redisCommand = await programOf('Redis', 'redis-server');
const rabbitMqCommand = await rabbitMqProgram();
const secrets = ['old', 'new'].map(
  (name) => `whsec_${Buffer.from(`the ${name} secret of an endpoint`).toString('base64')}`,
);
const unsigned = /^again: .*(?:certificate|alert|self.signed|ECONNRESET|TLS|closed|socket|terminated)/i;

let folder: string;
let certificates: Certificates;
/** The section `tls` of a relay with a certificate, and of one without. */
let tls: object;
let anonymous: object;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'relay-secured-'));
  certificates = await makeCertificates(folder);
  anonymous = { caFile: certificates.authority };
  tls = { ...anonymous, certFile: certificates.client.cert, keyFile: certificates.client.key };
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** The broker of a relay with this section of a configuration file. */
async function open(section: Readonly<Record<string, object>>): Promise<Broker> {
  const [relay] = await openRelays({ namespace: 'com.example', relay: [{ name: 'r', ...section }] });
  if (relay === undefined) throw new Error('There is no relay');
  onTestFinished(() => relay.broker.close());
  return relay.broker;
}

const answerOf = async (section: Readonly<Record<string, object>>): Promise<string> =>
  answerTo(await open(section), messageFor('com.example.Counter', 'a', 1));

/** A server of NATS with a configuration. */
async function startNats(configuration: string): Promise<OwnServer> {
  const server = await OwnServer.create((port, store) => ({
    command: natsCommand ?? '',
    args: ['-a', '127.0.0.1', '-p', `${port}`, '-js', '-sd', store, '-c', join(store, 'nats.conf')],
  }));
  await writeFile(join(server.folder, 'nats.conf'), configuration);
  await server.start();
  onTestFinished(() => server.end());
  return server;
}

/** An endpoint that asks for a certificate; it keeps the headers of what it gets. */
async function endpoint(): Promise<{
  readonly server: Server;
  readonly url: string;
  readonly got: Record<string, string>[];
}> {
  const pem = await readFile(certificates.server);
  const ca = await readFile(certificates.authority);
  const got: Record<string, string>[] = [];
  const server = createServer(
    { cert: pem, key: pem, ca, requestCert: true, rejectUnauthorized: true },
    (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        got.push({
          ...(request.headers as Record<string, string>),
          body: Buffer.concat(chunks).toString(),
        });
        response.writeHead(204).end();
      });
    },
  ).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { server, url: `https://127.0.0.1:${(server.address() as AddressInfo).port}/events`, got };
}

describe.skipIf(natsCommand === undefined)('NATS', () => {
  test('takes messages of a relay with a certificate of its authority', async () => {
    const { server: file, authority } = certificates;
    const { port } = await startNats(
      `tls { cert_file: "${file}", key_file: "${file}", ca_file: "${authority}", verify: true }`,
    );
    const nats = { servers: [`127.0.0.1:${port}`], stream: 'events', createStream: true, timeoutMs: 5_000 };
    expect(await answerOf({ nats: { ...nats, tls } })).toBe('confirmed');
    expect(await answerOf({ nats: { ...nats, tls: true } })).toMatch(unsigned);
  });

  test('takes messages of a relay with credentials of its operator', async () => {
    const { configuration, credentials } = makeAccounts();
    const { port } = await startNats(configuration);
    const credsFile = join(folder, 'relay.creds');
    await writeFile(credsFile, credentials);
    const authenticator = credsAuthenticator(Buffer.from(credentials));
    const connection = await connectNats({ servers: `127.0.0.1:${port}`, authenticator });
    await (await jetstreamManager(connection)).streams.add({ name: 'events', subjects: ['com.>'] });
    const nats = { servers: [`127.0.0.1:${port}`], stream: 'events' };
    expect(await answerOf({ nats: { ...nats, credsFile } })).toBe('confirmed');
    expect(await answerOf({ nats })).toMatch(/^again: .*authorization/i);
    await connection.close();
  });

  test('takes messages of a relay with a key that it knows', async () => {
    const key = nkeys.createUser();
    const nkeySeed = new TextDecoder().decode(key.getSeed());
    const { port } = await startNats(`authorization: { users: [ { nkey: ${key.getPublicKey()} } ] }`);
    const nats = { servers: [`127.0.0.1:${port}`], stream: 'events', createStream: true };
    expect(await answerOf({ nats: { ...nats, nkeySeed } })).toBe('confirmed');
    const other = new TextDecoder().decode(nkeys.createUser().getSeed());
    expect(await answerOf({ nats: { ...nats, nkeySeed: other } })).toMatch(/^again: .*authorization/i);
  });

  test('has messages under the subjects that a template makes, in a stream that was created for them', async () => {
    const { port } = await startNats('');
    const nats = {
      servers: [`127.0.0.1:${port}`],
      stream: 'events',
      createStream: true,
      subject: 'shop.{namespace}.{model}.{id}.{type}',
    };
    const broker = await open({ nats });
    const message = messageFor('t', 'a7', 1);
    const attributes = { ...message.attributes, type: `com.example.${message.eventType}` };
    expect(await answerTo(broker, { ...message, attributes })).toBe('confirmed');
    expect(await answerTo(broker, messageFor('t', 'a b', 1))).toMatch(/^refused: /);
    const connection = await connectNats({ servers: `127.0.0.1:${port}` });
    const { config, state } = await (
      await jetstreamManager(connection)
    ).streams.info('events', { subjects_filter: '>' });
    expect(config.subjects).toEqual(['shop.com.example.>']);
    expect(state.subjects).toEqual({ 'shop.com.example.Counter.a7.CounterIncreasedEvent': 1 });
    await connection.close();
  });
});

test.skipIf(redisCommand === undefined)(
  'Redis takes entries of a relay with a certificate of its authority, in streams that a template names',
  async () => {
    const tlsPort = await freePort();
    const { server: file, authority } = certificates;
    const files = ['--tls-cert-file', file, '--tls-key-file', file, '--tls-ca-cert-file', authority];
    const server = await OwnServer.create((port, data) => ({
      command: redisCommand ?? '',
      args: ['--bind', '127.0.0.1', '--port', `${port}`, '--dir', data, '--tls-port', `${tlsPort}`, ...files],
    }));
    await server.start();
    onTestFinished(() => server.end());
    const url = `rediss://127.0.0.1:${tlsPort}`;
    const broker = await open({ redis: { url, stream: '{model}:{id}', tls } });
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toBe('confirmed');
    expect(await answerTo(broker, messageFor('t', 'b', 1))).toBe('confirmed');
    expect(await answerOf({ redis: { url, tls: anonymous, timeoutMs: 2_000 } })).toMatch(unsigned);
    expect(await answerOf({ redis: { url, timeoutMs: 2_000 } })).toMatch(unsigned);
  },
);

test.skipIf(rabbitMqCommand === undefined)(
  'RabbitMQ takes messages of a relay with a certificate of its authority, by routing keys that a template makes',
  async () => {
    const tlsPort = await freePort();
    const { server: file, authority } = certificates;
    const { names, server } = await rabbitMqServer(rabbitMqCommand ?? '', [
      `listeners.ssl.1 = 127.0.0.1:${tlsPort}`,
      `ssl_options.cacertfile = ${authority}`,
      `ssl_options.certfile = ${file}`,
      `ssl_options.keyfile = ${file}`,
      'ssl_options.verify = verify_peer',
      'ssl_options.fail_if_no_peer_cert = true',
    ]);
    await names.start();
    await server.start();
    onTestFinished(async () => {
      for (const each of [server, names]) await each.end();
    });
    const connection = await connectAmqp(`amqp://guest:guest@127.0.0.1:${server.port}`);
    const channel = await connection.createChannel();
    await channel.assertExchange('events', 'topic', { durable: true });
    await channel.assertQueue('events', { durable: true });
    await channel.bindQueue('events', 'events', 'a.*.Counter');
    const rabbitmq = {
      url: `amqps://guest:guest@127.0.0.1:${tlsPort}`,
      exchange: 'events',
      routingKey: 'a.{id}.{model}',
    };
    expect(await answerOf({ rabbitmq: { ...rabbitmq, tls } })).toBe('confirmed');
    expect(await channel.get('events')).toMatchObject({ fields: { routingKey: 'a.a.Counter' } });
    expect(await answerOf({ rabbitmq: { ...rabbitmq, tls: anonymous, timeoutMs: 2_000 } })).toMatch(unsigned);
    await connection.close();
  },
);

describe('a webhook', () => {
  test('takes messages of a relay with a certificate, signed by the old and by the new secret', async () => {
    const { url, got } = await endpoint();
    const headers = [{ name: 'X-Api-Key', value: 'k' }];
    expect(await answerOf({ webhooks: { url, secret: secrets, tls, headers } })).toBe('confirmed');
    expect(got).toMatchObject([{ 'x-api-key': 'k', 'ce-modelname': 'Counter' }]);
    for (const secret of secrets) new Webhook(secret).verify(got[0]?.['body'] ?? '', got[0] ?? {});
    expect(await answerOf({ webhooks: { url, secret: secrets[0] ?? '', tls: anonymous } })).toMatch(unsigned);
    expect(await answerOf({ webhooks: { url, secret: secrets[0] ?? '' } })).toMatch(unsigned);
    expect(got).toHaveLength(1);
  });

  test('is reached again after a proxy that has not answered once', async () => {
    const { url, got } = await endpoint();
    let tunnelCount = 0;
    const proxy = createHttpServer().on('connect', (request, socket) => {
      socket.on('error', () => undefined);
      if (tunnelCount++ === 0) return;
      const [host = '', port] = (request.url ?? '').split(':');
      const upstream = connect(Number(port), host, () => {
        socket.write('HTTP/1.1 200 Connection Established\r\n\r\n');
        upstream.pipe(socket).pipe(upstream);
      });
      upstream.on('error', () => undefined);
    });
    proxy.listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const address = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    const broker = await open({ webhooks: { url, secret: secrets, tls, proxy: address, timeoutMs: 500 } });
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toMatch(/^again: /);
    await expect.poll(() => answerTo(broker, messageFor('t', 'a', 1)), { timeout: 15_000 }).toBe('confirmed');
    expect(got.length).toBeGreaterThan(0);
    await broker.close();
    proxy.closeAllConnections();
    proxy.close();
  });

  test('is reached through a proxy, and not past it', async () => {
    const { url, got } = await endpoint();
    const tunnels: string[] = [];
    const proxy = createHttpServer().on('connect', (request, socket) => {
      tunnels.push(request.url ?? '');
      const [host = '', port] = (request.url ?? '').split(':');
      const upstream = connect(Number(port), host, () => {
        socket.write('HTTP/1.1 200 Connection Established\r\n\r\n');
        upstream.pipe(socket).pipe(upstream);
      });
      for (const each of [socket, upstream]) each.on('error', () => undefined);
    });
    proxy.listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const address = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    const broker = await open({ webhooks: { url, secret: secrets, tls, proxy: address } });
    for (const model of ['a', 'b', 'c'])
      expect(await answerTo(broker, messageFor('t', model, 1))).toBe('confirmed');
    expect(new Set(tunnels)).toEqual(new Set([new URL(url).host]));
    expect(got).toHaveLength(3);
    await broker.close();
    proxy.closeAllConnections();
    proxy.close();
    await once(proxy, 'close');
    const past = await open({ webhooks: { url, secret: secrets, tls, proxy: address } });
    expect(await answerTo(past, messageFor('t', 'a', 1))).toMatch(/^again: /);
    expect(got).toHaveLength(3);
  });
});
