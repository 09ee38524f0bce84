import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, type Socket, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { lockedCount, rowsOf, withSession } from './database-session.js';
import { bundledProgram } from './delivery/bundle-program.js';
import { RawConnection } from './raw-connection.js';
import { ProgramInProcess, type RunningProgram, ServiceProcess } from './service-process.js';
import { type ShardDatabases, type TestServiceOptions, configTree } from './start-test-service.js';
import { type Answer, WalletClient } from './wallet-client.js';

/** A port on which nothing listens: it is reserved. */
const closedPort = 1;
const closedUrl = `jdbc:postgresql://127.0.0.1:${closedPort}/none`;

/** Problems that affect only the shard (1, 0). */
const oneShardFaults: readonly (readonly [
  string,
  { readonly options: TestServiceOptions; readonly cause: string; readonly text: RegExp },
])[] = [
  [
    'the database of one is down',
    {
      options: { mexicoPort: closedPort, mexico: { password: 'hunter2' } },
      cause: 'unreachable',
      text: /connect ECONNREFUSED 127\.0\.0\.1:1: start the server/,
    },
  ],
  [
    'the user of one is refused',
    {
      options: { mexico: { username: 'nobody_knows', password: 'hunter2' } },
      cause: 'access-refused',
      text: /.*nobody_knows.*: correct username and password/,
    },
  ],
  [
    'the certificate of one cannot be read',
    {
      options: { mexico: { 'jdbc-url': `${closedUrl}?sslmode=verify-full&sslrootcert=/none.pem` } },
      cause: 'tls-refused',
      text: /ENOENT.*none\.pem.*: correct the server's certificate/,
    },
  ],
];

const started: RunningProgram[] = [];
let folder: string;
let global: TestDatabase;
let mexico: TestDatabase;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'wallet-process-'));
  [global, mexico] = await Promise.all([createTestDatabase(), createTestDatabase()]);
});
afterEach(async () => {
  for (const service of started.splice(0)) await service.end();
});
afterAll(async () => {
  await Promise.all([global.drop(), mexico.drop(), rm(folder, { recursive: true })]);
});

describe('the service at startup', () => {
  test('prints its address, its shards and example requests', async () => {
    const service = await start();
    const url = await service.printed('is ready');
    expect(service.stdout).toContain(`${url}/docs`);
    expect(service.stdout).toContain(`(0, 0) global-1 on ${global.host}:${global.port}/${global.database}`);
    expect(service.stdout).toContain(`(1, 0) mexico-1 on ${mexico.host}:${mexico.port}/${mexico.database}`);
    expect(service.stdout).toContain(`curl ${url}/wallets`);
  });

  test('says that it answers everybody, unless it needs tokens', async () => {
    const open = await start();
    await open.printed('is ready');
    expect(open.stdout).toContain('Access   everybody on this computer');
    const jwt = { issuer: 'https://id.example.com', audience: 'wallet-service', 'jwks-file': '/none.json' };
    const service = await start({ security: { jwt } }, { NODE_ENV: 'production' });
    await service.printed('is ready');
    expect(service.stdout).not.toContain('Access');
    expect(service.stdout).toContain('-H "Authorization: Bearer $TOKEN"');
  });

  test.each([
    ['in production', { NODE_ENV: 'production' }, 'NODE_ENV: is production'],
    ['on the network', { HOST: '0.0.0.0' }, 'HOST: 0.0.0.0 would answer everybody'],
  ])('is refused without tokens %s', async (_where, environment, text) => {
    const service = await start({}, environment);
    expect(await service.exitCode()).toBe(1);
    expect(service.stderr).toContain(text);
    expect(service.stderr).toContain('framework.security.jwt');
  });

  test('serves its OpenAPI document even when the page is turned off', async () => {
    const service = await start({}, { WALLET_DOCS: 'off' });
    const client = new WalletClient(await service.printed('is ready'));
    const statuses = async (path: string) => (await client.get(path)).status;
    expect(await Promise.all(['/docs', '/docs/start.js', '/openapi.json'].map(statuses))).toEqual([
      404, 404, 200,
    ]);
    expect(service.stdout).not.toContain('/docs');
  });

  test.each(oneShardFaults)(
    'serves the other shard while %s, and reports the fault',
    async (_what, { options, cause, text }) => {
      const service = await start(options);
      const url = await service.printed('The wallet service is ready, except for 1 of its 2 shards.');
      expect(service.stdout).toContain(
        `(0, 0) global-1 on ${global.host}:${global.port}/${global.database}\n`,
      );
      await expect.poll(() => service.stdout).toMatch(notReady('\\(1, 0\\) mexico-1', text));
      const client = new WalletClient(url);
      const { status, body } = await client.get('/health/ready');
      expect([status, body]).toMatchObject([
        503,
        {
          status: 'unavailable',
          shards: [
            { name: 'global-1', status: 'ready' },
            { name: 'mexico-1', cause },
          ],
        },
      ]);
      expect(await exampleOf(service)).toMatchObject({
        status: 201,
        body: { shard: { group: 0, member: 0 } },
      });
      const ownerId = '7c9e6679-7425-40de-944b-e07fc1f90ae7';
      const refused = await client.post('/wallets', { country: 'MX', ownerId, currency: 'MXN' });
      expect(refused).toMatchObject({ status: 503, body: { code: 'shard-unavailable' } });
      expect(JSON.stringify(refused.body)).toContain('Shard (1, 0) is unavailable: ');
      await expect
        .poll(() => service.stderr)
        .toMatch(
          new RegExp(`"kind":"not-ready".*shard \\(1, 0\\) mexico-1 on \\S+ is not ready: ${text.source}`),
        );
      service.kill('SIGTERM');
      expect(await service.exitCode()).toBe(0);
      expect(service.stdout + service.stderr).not.toMatch(/hunter2|\n\s+at /);
    },
  );

  test('serves and delivers on a shard as soon as its fault is removed', async () => {
    const name = `${mexico.database}_later`;
    const later: TestDatabase = Object.assign(Object.create(mexico) as TestDatabase, { database: name });
    const service = await start({}, {}, { global, mexico: later });
    const url = await service.printed('except for 1 of its 2 shards');
    await rowsOf(mexico, `create database ${name}`);
    await service.printed(`Shard (1, 0) mexico-1 on ${mexico.host}:${mexico.port}/${name} is ready`);
    const client = new WalletClient(url);
    expect((await client.get('/health/ready')).status).toBe(200);
    const [source, dest] = [await client.openWallet(), await client.openWallet({ country: 'MX' })];
    const transfer = { sourceId: source.id, destId: dest.id, amount: '1' };
    const { headers } = await client.post('/transfers', transfer);
    const settled = async (): Promise<unknown> => (await client.get(headers['location'] ?? '')).body;
    await expect.poll(settled).toMatchObject({ state: 'COMPLETED' });
    service.kill('SIGTERM');
    expect(await service.exitCode()).toBe(0);
    await rowsOf(mexico, `drop database ${name}`);
  });

  test('exits when no shard can be used, and names each', async () => {
    const service = await start({
      global: {
        'jdbc-url': 'jdbc:postgresql://127.0.0.1:5432/none?sslmode=verify-full&sslrootcert=/none.pem',
      },
      mexico: { username: 'nobody_knows', password: 'hunter2' },
    });
    expect(await service.exitCode()).toBe(1);
    expect(service.stderr).toMatch(/^WALLET_CONFIG=.*wallet\.json\nNo shard can be used:$/m);
    const path = 'framework.sharding.groups';
    expect(service.stderr).toContain(
      `${path}[0].members[0].configs.primary-config: shard (0, 0) global-1 on 127.0.0.1:5432/none: ENOENT`,
    );
    expect(service.stderr).toMatch(
      /shard \(1, 0\) mexico-1 on \S+: .*nobody_knows.*: correct username and password/,
    );
    expect(service.stdout + service.stderr).not.toMatch(/hunter2|\n\s+at /);
  });

  test('delivers what it can while a database is down, and reports what it waits for', async () => {
    const worker = await start({ mexicoPort: closedPort }, { WALLET_ROLE: 'worker' });
    await worker.printed('The wallet worker is ready, except for 1 of its 2 shards.');
    await expect.poll(() => worker.stdout).toMatch(notReady('\\(1, 0\\) mexico-1', /connect ECONNREFUSED/));
    const lease = "select from eventlog.processes where process_id like '%/' || $1 || '/%'";
    await expect.poll(() => rowsOf(global, lease, [worker.pid])).toHaveLength(1);
    expect(worker.stdout).not.toMatch(/is ready\.|http:/);
    worker.kill('SIGTERM');
    expect(await worker.exitCode()).toBe(0);
    expect(await rowsOf(global, lease, [worker.pid])).toEqual([]);
    // The reason is reported once: delivery waits until the shard is ready instead of failing again and again, even when it stops.
    expect(worker.stderr).not.toContain('delivery continues after an error');
  });

  test('waits while every database is down, and reports what it waits for', async () => {
    const service = await start({ global: { 'jdbc-url': closedUrl }, mexicoPort: closedPort });
    const url = await service.printed(
      'Waiting for shard (0, 0) global-1 on 127.0.0.1:1/none: connect ECONNREFUSED',
    );
    expect(service.stdout).toContain('; shard (1, 0) mexico-1 on ');
    expect((await new WalletClient(url).get('/health/live')).status).toBe(200);
    expect(service.stdout).not.toContain('is ready');
    service.kill('SIGTERM');
    expect(await service.exitCode()).toBe(0);
  });

  test('lists all faults of its configuration, without a password, and exits', async () => {
    const service = await start({
      global: { 'maximum-pool-size': 0, password: 'hunter2', pasword: 'hunter2' },
    });
    expect(await service.exitCode()).toBe(1);
    const path = 'framework.sharding.groups[0].members[0].configs.primary-config';
    expect(service.stderr).toContain(`${path}.maximum-pool-size: `);
    expect(service.stderr).toContain(`${path}.pasword: is not a known key`);
    expect(service.stdout + service.stderr).not.toMatch(/hunter2|\n\s+at /);
  });

  test.each(['all', 'http', 'worker'])(
    'exits with the faults of its delivery in the role %s',
    async (role) => {
      const delivery = { lease: '10 s', 'lease-ms': 1, retry: { 'attempts-max': 0 } };
      const service = await start({ delivery }, { WALLET_ROLE: role });
      expect(await service.exitCode()).toBe(1);
      expect(service.stderr).toMatch(/^WALLET_CONFIG=.*wallet\.json\n/);
      expect(service.stderr).toContain('framework.delivery.lease: is not a known key');
      expect(service.stderr).toContain('framework.delivery.lease-ms: must be a whole number from 100');
      expect(service.stderr).toContain(
        'framework.delivery.retry.attempts-max: must be a whole number from 1',
      );
    },
  );

  test('exits with one line when its port is in use', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const service = await start({}, { PORT: String(port) });
    expect(await service.exitCode()).toBe(1);
    expect(service.stderr).toMatch(new RegExp(`^Port ${port} of 127.0.0.1 is in use: .*\n$`));
    other.close();
  });

  test('serves the other shard while a migration fails, and reports the reason', async () => {
    const faulty = await createTestDatabase();
    await rowsOf(faulty, 'create table wallets (id int)');
    const service = await start({}, {}, { global: faulty, mexico });
    await service.printed('except for 1 of its 2 shards');
    await expect
      .poll(() => service.stdout)
      .toMatch(notReady('\\(0, 0\\) global-1', /relation "wallets" already exists/));
    expect(await exampleOf(service)).toMatchObject({ status: 201, body: { shard: { group: 1, member: 0 } } });
    service.kill('SIGTERM');
    expect(await service.exitCode()).toBe(0);
    await faulty.drop();
  });

  test.each(['all', 'worker'])(
    'exits when handler names are ambiguous, even while a database is down, in the role %s',
    async (role) => {
      const torn = await createTestDatabase();
      const before = await start({}, { WALLET_ROLE: 'http' }, { global: torn, mexico });
      await before.served();
      before.kill('SIGTERM');
      expect(await before.exitCode()).toBe(0);
      // A version renamed the handler without listing the old name as an alias, and left the database in this state.
      for (const name of ['settle-transfer', 'complete-transfer']) {
        await rowsOf(torn, 'insert into eventlog.handlers (handler) values ($1)', [name]);
        await rowsOf(torn, 'insert into eventlog.handler_names (name, handler) values ($1, $1)', [name]);
      }
      const service = await start(
        { mexicoPort: closedPort },
        { WALLET_ROLE: role },
        { global: torn, mexico },
      );
      expect(await service.exitCode()).toBe(1);
      expect(service.stderr).toMatch(
        /^The names of settle-transfer belong to 2 handlers, complete-transfer and settle-transfer, .*\n.*retire/m,
      );
      expect(service.stderr).not.toMatch(/The names .*delivery continues|\n\s+at /);
      await torn.drop();
    },
  );
});

describe('the service after SIGTERM', () => {
  test('accepts nothing more, closes idle connections, finishes running work and exits with 0', async () => {
    const service = await start();
    const url = await service.served();
    const idle = await idleConnection(url);
    await whileDepositing(url, async (deposit, session) => {
      const idleClosed = once(idle, 'close');
      service.kill('SIGTERM');
      await idleClosed;
      await expect.poll(() => fetch(`${url}/health/live`).catch(() => 'refused')).toBe('refused');
      await session.query('commit');
      // The connection of the deposit is not kept for as long as an idle one may last.
      const headers = { connection: 'close' };
      expect(await deposit).toMatchObject({ status: 200, headers, body: { version: 2, balance: '101' } });
      expect(await service.exitCode()).toBe(0);
    });
  });

  test('refuses requests that have not fully arrived and exits with 0', async () => {
    const service = await start();
    const url = await service.served();
    const client = new WalletClient(url);
    const { id } = await client.openWallet();
    const head = `POST /wallets/${id}/deposit HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n`;
    const halves = [
      'POST /wallets',
      head,
      `${head}content-length: 14\r\n\r\n{"amount":`,
      `${head}transfer-encoding: chunked\r\n\r\n5\r\n{"amo`,
      `${head}content-length: 14\r\nexpect: 100-continue\r\n\r\n`,
    ];
    const silent = await RawConnection.open(url);
    const untaken = await RawConnection.open(url);
    untaken.socket.pause();
    untaken.send('GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: x\r\n\r\n'.repeat(10));
    const connections = await Promise.all(
      halves.map(async (half) => (await RawConnection.open(url)).send(half)),
    );
    // Everything sent before has arrived when these requests are answered.
    for (let count = 0; count < 10; count += 1) await client.get('/health/live');
    service.kill('SIGTERM');
    for (const connection of connections) {
      const [answer] = await connection.ended();
      expect(connection.statuses).toEqual([408]);
      expect(answer?.headers['content-type']).toBe('application/problem+json');
      const instance = `urn:uuid:${answer?.headers['x-request-id']}`;
      expect(JSON.parse(answer?.body ?? '')).toMatchObject({ code: 'bad-request', instance });
    }
    expect(await silent.ended()).toEqual([]);
    expect(await service.exitCode()).toBe(0);
    untaken.close();
  });

  test('exits with 1 when its deadline passes', async () => {
    const service = await startProcess({ SHUTDOWN_TIMEOUT_MS: '300' });
    await whileDepositing(await service.served(), async (deposit) => {
      service.kill('SIGTERM');
      expect(await service.exitCode()).toBe(1);
      await expect(deposit).rejects.toThrow('fetch failed');
    });
    expect(service.stdout).toContain('Stopping took longer than 300 ms');
  });

  test('exits at once on a second signal', async () => {
    const service = await startProcess({ SHUTDOWN_TIMEOUT_MS: '600000' });
    const url = await service.served();
    await whileDepositing(url, async (deposit) => {
      service.kill('SIGTERM');
      await expect.poll(() => fetch(`${url}/health/live`).catch(() => 'refused')).toBe('refused');
      // Ctrl-C may arrive more than once; only a later signal counts as a second one.
      const killAgain = setInterval(() => service.kill('SIGINT'), 100);
      expect(await service.exitCode()).toBe(1);
      clearInterval(killAgain);
      await expect(deposit).rejects.toThrow('fetch failed');
    });
  });

  test('finishes running work after Ctrl-C, whether sent by the terminal or a parent', async () => {
    const service = await start();
    const url = await service.served();
    await whileDepositing(url, async (deposit, session) => {
      service.kill('SIGINT');
      service.kill('SIGINT');
      await expect.poll(() => fetch(`${url}/health/live`).catch(() => 'refused')).toBe('refused');
      await session.query('commit');
      expect(await deposit).toMatchObject({ status: 200 });
      expect(await service.exitCode()).toBe(0);
    });
  });
});

/** Runs the service's program, on the databases of this file by default. */
async function start(
  options: TestServiceOptions = {},
  environment: Readonly<Record<string, string>> = {},
  databases: ShardDatabases = { global, mexico },
): Promise<RunningProgram> {
  const service = new ProgramInProcess({
    WALLET_CONFIG: await configFile(options, databases),
    ...environment,
  });
  started.push(service);
  return service;
}

/** Starts the service as a process, which can end in the middle of its work. */
async function startProcess(environment: Readonly<Record<string, string>>): Promise<RunningProgram> {
  const WALLET_CONFIG = await configFile({}, { global, mexico });
  const service = new ServiceProcess({ WALLET_CONFIG, ...environment }, [await bundledProgram('main')]);
  started.push(service);
  return service;
}

async function configFile(options: TestServiceOptions, databases: ShardDatabases): Promise<string> {
  const file = join(folder, 'wallet.json');
  await writeFile(file, JSON.stringify(configTree(databases, { login: 'owner', ...options })));
  return file;
}

/**
 * How a process reports why a shard is not ready: when it is ready for the others, or later if the reason is not known by then.
 */
function notReady(shard: string, reason: RegExp): RegExp {
  return new RegExp(`${shard} on \\S+(, NOT READY| is not ready): ${reason.source}`);
}

/** Runs work while a deposit waits in the database for the session's commit. */
async function whileDepositing(
  url: string,
  work: (deposit: Promise<Answer>, session: pg.Client) => Promise<void>,
): Promise<void> {
  const client = new WalletClient(url);
  const { id } = await client.openWallet();
  await withSession(global, async (session) => {
    await session.query('begin');
    await session.query('select from wallets where id = $1 for update', [id]);
    const deposit = client.post(`/wallets/${id}/deposit`, { amount: '1' });
    // If the deposit fails, the work may notice only later; until then, nothing handles the rejection.
    deposit.catch(() => undefined);
    await expect.poll(() => lockedCount(global)).toBe(1);
    await work(deposit, session);
  });
}

/** A connection that has had an answer and waits for its next request. */
async function idleConnection(url: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.write('GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n');
  const [answer] = (await once(socket, 'data')) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1\.1 200 /);
  socket.resume();
  return socket;
}

/** Sends the request that a process prints as an example. */
async function exampleOf({ stdout }: RunningProgram): Promise<{ status: number; body: unknown }> {
  const [, url = '', type = '', body = ''] =
    /curl (\S+) -H 'Content-Type: (\S+)' -d '(.*)'/.exec(stdout) ?? [];
  const response = await fetch(url, { method: 'POST', headers: { 'content-type': type }, body });
  return { status: response.status, body: await response.json() };
}
