import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { rowsOf } from './database-session.js';
import { bundledProgram } from './delivery/bundle-program.js';
import { ProgramInProcess, type RunningProgram, ServiceProcess } from './service-process.js';
import { configTree } from './start-test-service.js';
import { WalletClient } from './wallet-client.js';

const canary = 'Tr0ub4dor-and-3-secrets';
const role = `secrets_${process.pid}`;
// A server that trusts everybody refuses no password, but a login that it does not know.
const unknownLogin = `unknown_${process.pid}`;
const primary = (group: number) => `FRAMEWORK_SHARDING_GROUPS_${group}_MEMBERS_0_CONFIGS_PRIMARYCONFIG`;

let folder: string;
let secretFile: string;
let global: TestDatabase;
let mexico: TestDatabase;
const started: RunningProgram[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'wallet-secrets-'));
  secretFile = join(folder, 'secret');
  await writeFile(secretFile, `${canary}\n`);
  [global, mexico] = await Promise.all([createTestDatabase(), createTestDatabase()]);
  await rowsOf(global, `create role ${role} login superuser password '${canary}'`);
});
afterEach(async () => {
  for (const service of started.splice(0)) await service.end();
});
afterAll(async () => {
  await global.drop();
  await rowsOf(mexico, `drop role ${role}`);
  await mexico.drop();
  await rm(folder, { recursive: true });
});

describe('a secret appears in no output', () => {
  test('of a service that logs in with it and works', async () => {
    // A process of its own, because Node's warnings are part of its output.
    const program = [await bundledProgram('main')];
    const login = { [`${primary(0)}_USERNAME`]: role, [`${primary(0)}_PASSWORD_FILE`]: secretFile };
    const service = new ServiceProcess(await environmentOf(login), program);
    started.push(service);
    const url = await service.served();
    const client = new WalletClient(url);
    const { id } = await client.openWallet();
    await client.post(`/wallets/${id}/deposit`, { amount: '1' });
    await expectHidden(service, url);
    const logins = `select from pg_stat_activity where usename = '${role}'`;
    expect((await rowsOf(global, logins)).length).toBeGreaterThan(0);
    service.kill('SIGTERM');
    expect(await service.exitCode()).toBe(0);
    await expectHidden(service);
  });

  test.each([
    ['a login that the database refuses', refusedLogin],
    [
      'a key for the database that is none',
      () => ({
        [`${primary(1)}_SSL_CERTFILE`]: secretFile,
        [`${primary(1)}_SSL_KEYFILE`]: secretFile,
      }),
    ],
    [
      'a broker that is away',
      () => ({
        FRAMEWORK_RELAY_0_NAME: 'events',
        FRAMEWORK_RELAY_0_RABBITMQ_URL: `amqp://wallet:${canary}@127.0.0.1:1`,
        FRAMEWORK_RELAY_0_RABBITMQ_EXCHANGE: 'wallet-events',
        ...refusedLogin(),
      }),
    ],
  ])('of a service with %s', async (_what, environment) => {
    const service = await start(environment());
    const url = await service.printed('except for 1 of its 2 shards');
    await expect.poll(() => service.stderr).toContain('"kind":"not-ready"');
    await new WalletClient(url).post('/wallets', {
      country: 'MX',
      ownerId: '7c9e6679-7425-40de-944b-e07fc1f90ae7',
      currency: 'MXN',
    });
    await expectHidden(service, url);
    service.kill('SIGTERM');
    await service.exitCode();
    await expectHidden(service);
  });

  test.each([
    ['an unknown variable', { FRAMEWORK_SECRET: canary }, 'FRAMEWORK_SECRET: is not known'],
    [
      'a URL with a wrong port',
      { [`${primary(0)}_JDBCURL`]: `postgres://u:${canary}@db:99999/x` },
      'jdbc-url',
    ],
    ['a URL of another kind', { [`${primary(0)}_JDBCURL`]: `mysql://u:${canary}@db/x` }, 'jdbc-url'],
    ['a number that is none', { [`${primary(0)}_MAXIMUMPOOLSIZE`]: canary }, 'maximum-pool-size'],
    ['a broker of another kind', { ...relayTo(`ftp://u:${canary}@broker`) }, 'framework.relay[0]'],
    ['a key that is none', { tls: 'true' }, 'framework.http.tls.key-file'],
    ['a list that is none', { FRAMEWORK_HTTP_CORS_ORIGINS: canary }, 'framework.http.cors.origins'],
  ])('of a service that does not start because of %s', async (_what, environment, message) => {
    const { tls, ...variables } = environment as Readonly<Record<string, string>>;
    const files = { FRAMEWORK_HTTP_TLS_CERTFILE: secretFile, FRAMEWORK_HTTP_TLS_KEYFILE: secretFile };
    const service = await start({ ...variables, ...(tls === 'true' && files) });
    expect(await service.exitCode()).toBe(1);
    expect(service.stderr).toContain(message);
    await expectHidden(service);
  });
});

function refusedLogin(): Readonly<Record<string, string>> {
  return { [`${primary(1)}_USERNAME`]: unknownLogin, [`${primary(1)}_PASSWORD`]: canary };
}

function relayTo(url: string): Readonly<Record<string, string>> {
  return { FRAMEWORK_RELAY_0_NAME: 'events', FRAMEWORK_RELAY_0_REDIS_URL: url };
}

async function start(environment: Readonly<Record<string, string>>): Promise<RunningProgram> {
  const service = new ProgramInProcess(await environmentOf(environment));
  started.push(service);
  return service;
}

async function environmentOf(
  environment: Readonly<Record<string, string>>,
): Promise<Readonly<Record<string, string>>> {
  const file = join(folder, 'wallet.json');
  await writeFile(file, JSON.stringify(configTree({ global, mexico }, { login: 'owner' })));
  return { WALLET_CONFIG: file, LOG_LEVEL: 'trace', ...environment };
}

/** Fails if the secret, or a usual form of it, is in what the service has printed, logged or answers about itself. */
async function expectHidden(service: RunningProgram, url?: string): Promise<void> {
  const paths = url === undefined ? [] : ['/health/ready', '/health/live', '/health/relay', '/openapi.json'];
  const answers = await Promise.all(paths.map(async (path) => (await fetch(`${url}${path}`)).text()));
  const output = [service.stdout, service.stderr, ...answers].join('\n');
  for (const form of [canary, canary.slice(0, 9), Buffer.from(canary).toString('base64').slice(0, 24)])
    expect(output).not.toContain(form);
}
