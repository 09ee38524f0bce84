import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { parseFrameworkConfig } from '@framework/core';
import { pino } from 'pino';
import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest';

import { type RunningWallets, startWallets } from '../started-service.js';
import { type TestService, startTestService, stopTestService } from '../start-test-service.js';
import {
  type KeyServer,
  TestIssuer,
  audience,
  issuer,
  serveKeys,
} from '../../../../packages/http/test/test-issuer.js';

let running: TestService | undefined;
afterEach(async () => {
  if (running !== undefined) await stopTestService(running);
  running = undefined;
});

async function keyServerOf(issuing: TestIssuer): Promise<KeyServer> {
  const keys = await serveKeys(issuing);
  onTestFinished(() => keys.close());
  return keys;
}

describe('a service whose keys are at an address', () => {
  test('answers 503 until it has them, then needs the address no more', async () => {
    const issuing = await TestIssuer.create();
    const keys = await keyServerOf(issuing);
    keys.isUp = false;
    running = await startTestService({ security: { jwt: { issuer, audience, 'jwks-uri': keys.url } } });
    const { client, log } = running;
    const headers = { authorization: `Bearer ${await issuing.token()}` };
    const list = '/wallets?ownerId=7c9e6679-7425-40de-944b-e07fc1f90ae7';
    const refused = await client.send(list, { headers });
    expect(refused).toMatchObject({ status: 503, body: { code: 'keys-unavailable' } });
    expect(refused.headers['retry-after']).toBe('1');
    expect(refused.headers['www-authenticate']).toBeUndefined();
    expect(log.join('')).toContain('the keys of tokens cannot be read');
    expect((await client.get('/health/ready')).status).toBe(200);
    expect((await client.get(list)).status).toBe(401);
    keys.isUp = true;
    await vi.waitFor(async () => expect((await client.send(list, { headers })).status).toBe(200), {
      timeout: 20_000,
      interval: 200,
    });
    keys.isUp = false;
    expect((await client.send(list, { headers })).status).toBe(200);
  });
});

describe('a service with tokens', () => {
  test.each([
    '/wallets/',
    '//wallets',
    '/Wallets',
    '/%77allets',
    '/wallets%2F',
    '/./wallets',
    '/docs/../wallets',
    '/wallets;x',
  ])('answers nothing at another spelling of an address: %s', async (address) => {
    const jwt = { issuer, audience, 'jwks-file': '/none.json' };
    const { url, stop } = await startWithoutDatabase({ jwt });
    onTestFinished(stop);
    // `fetch` would normalize the address.
    const { hostname, port } = new URL(url);
    const sent = httpRequest({ hostname, port, path: `${address}?ownerId=${randomUUID()}` }).end();
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    response.resume();
    expect([401, 404]).toContain(response.statusCode);
  });
});

describe('a service without tokens', () => {
  test('refuses to listen where others could reach it', async () => {
    await expect(startWithoutDatabase({}, { host: '0.0.0.0' })).rejects.toMatchObject({
      code: 'invalid-configuration',
      faults: [{ path: 'HOST' }],
    });
  });

  test('refuses to start in production', async () => {
    await expect(startWithoutDatabase({}, { isProduction: true })).rejects.toMatchObject({
      code: 'invalid-configuration',
      faults: [{ path: 'NODE_ENV' }],
    });
  });
});

function startWithoutDatabase(security: object, options: object = {}): Promise<RunningWallets> {
  const configs = { 'primary-config': { 'jdbc-url': 'postgres://127.0.0.1:1/none' } };
  const groups = [{ group: 0, name: 'global', members: [{ member: 0, name: 'global-1', configs }] }];
  const sharding = { 'default-shard': { group: 0, member: 0 }, groups };
  return startWallets({
    config: parseFrameworkConfig({ framework: { namespace: 'com.example.wallet', sharding, security } }),
    host: '127.0.0.1',
    port: 0,
    logger: pino({ level: 'silent' }),
    ...options,
  });
}
