import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { createClient } from 'redis';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';

import type { Broker } from '../../src/index.js';
import { type RedisOptions, redis } from '../../src/redis.js';
import { messageFor } from '../broker-suite.js';
import { OwnServer, freePort, programOf } from '../faults/own-server.js';
import { answerTo } from './answer.js';
import { warningsOf } from './warnings.js';

const command = await programOf('Redis', 'redis-server');
const patience = { timeout: 10_000, interval: 50 };
const stream = 'events';
/** A replica would wait for further ones otherwise. */
const fast = ['--repl-diskless-sync-delay', '0'];

/** A server of a test's own, and a client that may do everything there. */
async function start(...settings: readonly string[]) {
  const server = await OwnServer.create((port, folder) => ({
    command: command ?? '',
    args: ['--bind', '127.0.0.1', '--port', `${port}`, '--dir', folder, '--save', '', ...fast, ...settings],
  }));
  await server.start();
  const client = createClient({ url: `redis://127.0.0.1:${server.port}` });
  await client.connect();
  onTestFinished(async () => {
    client.destroy();
    await server.end();
  });
  return { server, client, port: server.port };
}

const opened: Broker[] = [];
afterEach(() => Promise.all(opened.splice(0).map((broker) => broker.close())));

function open(
  port: number,
  { user = '', ...options }: Partial<RedisOptions> & { user?: string } = {},
): Broker {
  const broker = redis({ url: `redis://${user}127.0.0.1:${port}`, stream, timeoutMs: 2_000, ...options });
  opened.push(broker);
  return broker;
}

/** An address behind which the server can be another one, while connections stay open. */
async function addressOf(port: number) {
  const address = { to: port, port: 0 };
  const sockets = new Set<Socket>();
  const proxy = createServer((socket) => {
    const upstream = connect(address.to, '127.0.0.1');
    for (const each of [socket, upstream]) {
      sockets.add(each);
      each.on('error', () => undefined);
      each.on('close', () => {
        socket.destroy();
        upstream.destroy();
      });
    }
    socket.pipe(upstream).pipe(socket);
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });
  address.port = (proxy.address() as AddressInfo).port;
  return address;
}

describe.skipIf(command === undefined)('Redis', () => {
  test('that became the replica of another one behind the same address is left for that one', async () => {
    const [primary, replica] = [await start(), await start()];
    await replica.client.sendCommand(['REPLICAOF', '127.0.0.1', `${primary.port}`]);
    await expect.poll(() => replica.client.info('replication'), patience).toContain('master_link_status:up');
    const address = await addressOf(primary.port);
    const broker = open(address.port);
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toBe('confirmed');
    await expect.poll(() => replica.client.xLen(stream), patience).toBe(1);
    await replica.client.sendCommand(['REPLICAOF', 'NO', 'ONE']);
    address.to = replica.port;
    await primary.client.sendCommand(['REPLICAOF', '127.0.0.1', `${replica.port}`]);
    expect(await answerTo(broker, messageFor('t', 'a', 2))).toMatch(/^later: READONLY/);
    await expect.poll(() => answerTo(broker, messageFor('t', 'a', 2)), patience).toBe('confirmed');
    await broker.ping();
    expect(await replica.client.xLen(stream)).toBe(2);
  });

  test('that became a replica is found by a ping, and the next one asks the other one', async () => {
    const [primary, replica] = [await start(), await start()];
    const address = await addressOf(primary.port);
    const broker = open(address.port);
    await broker.ping();
    address.to = replica.port;
    await primary.client.sendCommand(['REPLICAOF', '127.0.0.1', `${replica.port}`]);
    await expect(broker.ping()).rejects.toThrow('is a replica');
    await broker.ping();
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toBe('confirmed');
    expect(await replica.client.xLen(stream)).toBe(1);
  });

  test('in a cluster is refused at the first connection, before anything is sent', async () => {
    // The default port of the bus, 10,000 above, may be one that Linux has given to an outgoing connection.
    const busPort = await freePort();
    const { port, client } = await start('--cluster-enabled', 'yes', '--cluster-port', `${busPort}`);
    await client.sendCommand(['CLUSTER', 'ADDSLOTSRANGE', '0', '16383']);
    const broker = open(port);
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toMatch(/^again: .*node of a cluster/);
    await expect(broker.ping()).rejects.toThrow('node of a cluster');
    expect(await client.dbSize()).toBe(0);
  });

  test('that is a sentinel is refused at the first connection', async () => {
    const sentinel = await OwnServer.create((port, folder) => ({
      command: command ?? '',
      args: [join(folder, 'sentinel.conf'), '--sentinel', '--port', `${port}`],
    }));
    await writeFile(join(sentinel.folder, 'sentinel.conf'), 'bind 127.0.0.1\nprotected-mode no\n');
    await sentinel.start();
    const broker = open(sentinel.port);
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toMatch(/^again: .*sentinel/);
    await sentinel.end();
  });

  test('says in its own words why a user may not add entries, to messages and to a ping', async () => {
    const { port, client } = await start();
    await client.sendCommand(['ACL', 'SETUSER', 'relay', 'on', '>pw', '~*', '+@all', '-xadd']);
    const broker = open(port, { user: 'relay:pw@' });
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toMatch(/^later: NOPERM/);
    await expect(broker.ping()).rejects.toThrow(/NOPERM.*xadd/);
    await client.sendCommand(['ACL', 'SETUSER', 'relay', '+xadd']);
    await broker.ping();
    expect(await client.exists(stream)).toBe(0);
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toBe('confirmed');
  });

  test('takes the entries of other streams although the user may not write one of them', async () => {
    const { port, client } = await start();
    await client.sendCommand(['ACL', 'SETUSER', 'relay', 'on', '>pw', '~Counter', '+@all']);
    const broker = open(port, { user: 'relay:pw@', stream: '{topic}' });
    const messages = ['Counter', 'Wallet', 'Counter'].map((topic, index) =>
      messageFor(topic, `m${index}`, 1),
    );
    const outcomes = await broker.publish(messages, new AbortController().signal);
    expect(outcomes).toMatchObject([
      { kind: 'confirmed' },
      { kind: 'later', reason: expect.stringContaining('NOPERM') as string },
      { kind: 'confirmed' },
    ]);
    expect(await client.xLen('Counter')).toBe(2);
  });

  test('says which entries it has when the time of a call is over', async () => {
    const { port, client } = await start();
    const broker = open(port, { stream: '{topic}' });
    const messages = Array.from({ length: 400 }, (_unused, index) => messageFor(`s${index % 2}`, 'a', index));
    const time = new AbortController();
    await broker.ping();
    setImmediate(() => time.abort(new Error('time is over')));
    const outcomes = await broker.publish(messages, time.signal).catch(() => []);
    const stored = (await client.xLen('s0')) + (await client.xLen('s1'));
    expect(stored).toBeLessThan(400);
    expect(outcomes.filter(({ kind }) => kind === 'confirmed')).toHaveLength(stored);
  });

  test('with a user who may not use transactions gets nothing, and the right is named', async () => {
    const { port, client } = await start();
    await client.sendCommand(['ACL', 'SETUSER', 'relay', 'on', '>pw', '~*', '+@all', '-multi']);
    const broker = open(port, { user: 'relay:pw@' });
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toMatch(/^again: .*NOPERM.*multi/);
    await expect(broker.ping()).rejects.toThrow('multi');
    expect(await client.exists(stream)).toBe(0);
  });

  test('whose user loses that right gets no more of each message than one entry, until the right is given back', async () => {
    const { port, client } = await start();
    await client.sendCommand(['ACL', 'SETUSER', 'relay', 'on', '>pw', '~*', '+@all']);
    const broker = open(port, { user: 'relay:pw@' });
    const message = messageFor('t', 'a', 1);
    await broker.ping();
    await client.sendCommand(['ACL', 'SETUSER', 'relay', '-multi']);
    await expect(broker.ping()).rejects.toThrow('multi');
    await client.sendCommand(['ACL', 'SETUSER', 'relay', '+multi']);
    expect(await answerTo(broker, messageFor('t', 'b', 1))).toBe('confirmed');
    await client.sendCommand(['ACL', 'SETUSER', 'relay', '-multi']);
    for (let round = 0; round < 3; round++) expect(await answerTo(broker, message)).toMatch('multi');
    expect(await client.xLen(stream)).toBeLessThanOrEqual(2);
    await client.sendCommand(['ACL', 'SETUSER', 'relay', '+multi']);
    expect(await answerTo(broker, message)).toBe('confirmed');
  });

  test.each([
    ['has no memory left', 'OOM', ['maxmemory', '1mb'], ['maxmemory', '0']],
    ['misses a replica', 'NOREPLICAS', ['min-replicas-to-write', '1'], ['min-replicas-to-write', '0']],
  ])('that %s takes the entry once it can', async (_case, code, before, after) => {
    const { port, client } = await start();
    await client.sendCommand(['CONFIG', 'SET', ...before]);
    const broker = open(port);
    const message = messageFor('t', 'a', 1);
    expect(await answerTo(broker, message)).toMatch(new RegExp(`^later: ${code}`));
    await expect(broker.ping()).rejects.toThrow(code);
    await client.sendCommand(['CONFIG', 'SET', ...after]);
    await broker.ping();
    expect(await answerTo(broker, message)).toBe('confirmed');
    expect(await client.xLen(stream)).toBe(1);
  });

  test('has another type under the key of the stream, until somebody removes it', async () => {
    const { port, client } = await start();
    await client.set(stream, 'text');
    const broker = open(port);
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toMatch(/^later: WRONGTYPE/);
    await client.del(stream);
    expect(await answerTo(broker, messageFor('t', 'a', 1))).toBe('confirmed');
  });

  test('that reads no value as large as a message refuses this one, and takes the others', async () => {
    const { port, client } = await start('--proto-max-bulk-len', '1mb');
    const large = messageFor('t', 'a', 1, JSON.stringify('x'.repeat(2_000_000)));
    const outcomes = await open(port).publish([large, messageFor('t', 'b', 1)], new AbortController().signal);
    expect(outcomes).toEqual([
      {
        kind: 'refused',
        reason: 'the body has 2000002 bytes, more than proto-max-bulk-len of the server (1048576)',
      },
      { kind: 'confirmed' },
    ]);
    expect(await client.xLen(stream)).toBe(1);
  });

  test.each([
    ['allkeys-lru', 1],
    ['volatile-lru', 0],
    ['noeviction', 0],
  ])('with %s warns %i times that it removes streams', async (policy, count) => {
    const warnings = warningsOf();
    const { port } = await start('--maxmemory', '100mb', '--maxmemory-policy', policy);
    const broker = open(port);
    await broker.ping();
    await broker.ping();
    const printed = await warnings();
    expect(printed).toHaveLength(count);
    for (const warning of printed) expect(warning).toContain(policy);
  });
});
