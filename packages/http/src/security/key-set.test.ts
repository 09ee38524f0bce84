import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type RequestListener, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

import { decodeProtectedHeader } from 'jose';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { leftBehind, unhandledIn } from '../../../core/test/left-behind.js';
import { type KeyServer, TestIssuer, audience, issuer, serveKeys } from '../../test/test-issuer.js';
import { Authentication } from './authentication.js';
import { type KeySource, KeySet, keySource } from './key-set.js';
import { type JwtSettings, jwtSchema } from './security-settings.js';

interface Verifying {
  readonly issuing: TestIssuer;
  readonly authentication: Authentication;
  readonly failures: readonly unknown[];
}

/** Verifies the tokens of an issuer with the keys of a source that may be different from that of the settings. */
async function verifying(
  source: (issuing: TestIssuer) => KeySource | Promise<KeySource>,
): Promise<Verifying> {
  const issuing = await TestIssuer.create();
  const failures: unknown[] = [];
  const settings = settingsOf({ jwksUri: 'https://id.example.com/jwks' });
  const authentication = new Authentication(settings, {
    realm: 'example',
    onKeysFailure: (error) => failures.push(error),
    keys: await source(issuing),
  });
  return { issuing, authentication, failures };
}

function settingsOf(keys: object): JwtSettings {
  return jwtSchema.parse({ issuer, audience, ...keys });
}

async function nameOf(authentication: Authentication, token: string): Promise<string> {
  const { name } = await authentication.principalOf(new Headers({ authorization: `Bearer ${token}` }));
  return name;
}

async function served(issuing: TestIssuer): Promise<KeyServer> {
  const server = await serveKeys(issuing);
  onTestFinished(() => server.close());
  return server;
}

const unauthorized = { code: 'unauthorized' };
const unavailable = { code: 'keys-unavailable' };

describe('the keys at an address', () => {
  test('are read once for many tokens', async () => {
    let server: KeyServer | undefined;
    const { issuing, authentication } = await verifying(async (from) => {
      server = await served(from);
      return keySource(settingsOf({ jwksUri: server.url }));
    });
    const tokens = await Promise.all([1, 2, 3].map((number) => issuing.token({ subject: `s-${number}` })));
    const names = await Promise.all(tokens.map((token) => nameOf(authentication, token)));
    expect(names).toEqual(['s-1', 's-2', 's-3']);
    expect(server?.asked()).toBe(1);
  });

  test('are read again for a token with a new key, but not for each of them', async () => {
    const state = { loads: 0 };
    const { issuing, authentication } = await verifying((from) => ({
      load: () => {
        state.loads++;
        return from.keys();
      },
      refreshMs: 60_000,
      cooldownMs: 60_000,
    }));
    await nameOf(authentication, await issuing.token());
    await issuing.rotate('key-2', { overlap: true });
    const token = await issuing.token();
    expect(decodeProtectedHeader(token)).toMatchObject({ kid: 'key-2' });
    await expect(nameOf(authentication, token)).rejects.toMatchObject(unauthorized);
    expect(state.loads).toBe(1);
  });

  test('follow an issuer that replaces its key, and forget the former one', async () => {
    const { issuing, authentication } = await verifying((from) => ({
      load: () => from.keys(),
      refreshMs: 60_000,
      cooldownMs: 0,
    }));
    const former = await issuing.token({ subject: 'former' });
    expect(await nameOf(authentication, former)).toBe('former');
    await issuing.rotate('key-2', { overlap: false });
    expect(await nameOf(authentication, await issuing.token({ subject: 'next' }))).toBe('next');
    await expect(nameOf(authentication, former)).rejects.toMatchObject(unauthorized);
  });

  test('are all tried if a token names none', async () => {
    const { issuing, authentication } = await verifying((from) => ({
      load: () => from.keys(),
      refreshMs: 60_000,
      cooldownMs: 0,
    }));
    const former = await issuing.token({ subject: 'former', kid: undefined });
    await issuing.rotate('key-2', { overlap: true });
    const next = await issuing.token({ subject: 'next', kid: undefined });
    expect(await nameOf(authentication, former)).toBe('former');
    expect(await nameOf(authentication, next)).toBe('next');
    const stranger = await TestIssuer.create();
    const forged = await stranger.token({ kid: undefined });
    await expect(nameOf(authentication, forged)).rejects.toMatchObject(unauthorized);
    const expired = await issuing.token({ kid: undefined, expiresInS: -60 });
    await expect(nameOf(authentication, expired)).rejects.toMatchObject({
      reason: 'ERR_JWT_EXPIRED',
    });
  });

  test('that cannot be used verify no token', async () => {
    const short = { kty: 'RSA', kid: 'short', alg: 'RS256', n: 'AQAB', e: 'AQAB' };
    const damaged = { kty: 'EC', kid: 'damaged', alg: 'ES256', crv: 'P-256', x: 'AAAA', y: 'AAAA' };
    const { issuing, authentication } = await verifying((from) => ({
      load: async () => ({ keys: [short, damaged, ...(await from.keys()).keys] }),
      refreshMs: 60_000,
      cooldownMs: 0,
    }));
    const header = Buffer.from(JSON.stringify({ alg: 'RS256', kid: 'short' })).toString('base64url');
    const [, claims, signature] = (await issuing.token()).split('.');
    for (const token of [`${header}.${claims}.${signature}`, await issuing.token({ kid: 'damaged' })])
      await expect(nameOf(authentication, token)).rejects.toMatchObject({
        ...unauthorized,
        reason: expect.stringContaining('its key cannot be used') as string,
      });
    expect(await nameOf(authentication, await issuing.token())).toBe('subject');
    expect(await nameOf(authentication, await issuing.token({ kid: undefined }))).toBe('subject');
  });

  test('are refreshed when they are old, so that a key that is withdrawn stops being valid', async () => {
    const { issuing, authentication } = await verifying((from) => ({
      load: () => from.keys(),
      refreshMs: 0,
      cooldownMs: 0,
    }));
    const former = await issuing.token();
    await nameOf(authentication, former);
    await issuing.rotate('key-2', { overlap: false });
    await vi.waitFor(() => expect(nameOf(authentication, former)).rejects.toMatchObject(unauthorized));
  });

  test('that were withdrawn while nobody asked verify no token', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const { issuing, authentication } = await verifying((from) => ({
      load: () => from.keys(),
      refreshMs: 60_000,
      cooldownMs: 10_000,
    }));
    const former = await issuing.token();
    expect(await nameOf(authentication, former)).toBe('subject');
    await issuing.rotate('key-2', { overlap: false });
    vi.advanceTimersByTime(120_001);
    const asked = [nameOf(authentication, former), nameOf(authentication, former)];
    for (const outcome of await Promise.allSettled(asked))
      expect(outcome).toMatchObject({ status: 'rejected', reason: unauthorized });
  });

  test('that are old delay no request while the address does not answer', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const state = { isSilent: false };
    const { issuing, authentication } = await verifying((from) => ({
      load: () => (state.isSilent ? new Promise(() => undefined) : from.keys()),
      refreshMs: 60_000,
      cooldownMs: 10_000,
    }));
    const token = await issuing.token();
    await nameOf(authentication, token);
    state.isSilent = true;
    vi.advanceTimersByTime(60_001);
    expect(await nameOf(authentication, token)).toBe('subject');
  });

  test('stay valid while the address is down, and others are refused', async () => {
    let server: KeyServer | undefined;
    const { issuing, authentication, failures } = await verifying(async (from) => {
      server = await served(from);
      return { ...keySource(settingsOf({ jwksUri: server.url })), refreshMs: 0, cooldownMs: 0 };
    });
    const known = await issuing.token();
    await nameOf(authentication, known);
    Object.assign(server ?? {}, { isUp: false });
    await issuing.rotate('key-2', { overlap: true });
    expect(await nameOf(authentication, known)).toBe('subject');
    const unknown = await issuing.token({ subject: 'later' });
    await expect(nameOf(authentication, unknown)).rejects.toMatchObject(unauthorized);
    await expect(nameOf(authentication, unknown)).rejects.toMatchObject(unauthorized);
    expect(failures).toHaveLength(1);
    Object.assign(server ?? {}, { isUp: true });
    expect(await nameOf(authentication, unknown)).toBe('later');
  });

  test('are not read from another address to which it redirects', async () => {
    let target: KeyServer | undefined;
    const { issuing, authentication, failures } = await verifying(async (from) => {
      const { url } = (target = await served(from));
      return keySource(settingsOf({ jwksUri: await redirectTo(url) }));
    });
    await expect(nameOf(authentication, await issuing.token())).rejects.toMatchObject(unavailable);
    expect([target?.asked(), failures.length]).toEqual([0, 1]);
  });

  test.each<[string, (text: string) => readonly [Buffer, Record<string, string>]]>([
    ['as they are', (text) => [Buffer.from(text), {}]],
    ['compressed', (text) => [gzipSync(text), { 'content-encoding': 'gzip' }]],
  ])('are read up to 256 KiB of an answer, and no further: %s', async (_how, encoded) => {
    const state = { bytes: 262_144, cutOff: 0 };
    const { issuing, authentication, failures } = await verifying(async (from) => {
      const text = JSON.stringify(await from.keys());
      const jwksUri = await servedBy((_request, response) => {
        const [body, headers] = encoded(text.padEnd(state.bytes));
        response.once('close', () => (state.cutOff += response.writableFinished ? 0 : 1));
        response.writeHead(200, headers).write(body);
        if (state.bytes <= 262_144) response.end();
      });
      return { ...keySource(settingsOf({ jwksUri })), refreshMs: 0, cooldownMs: 0 };
    });
    expect(await nameOf(authentication, await issuing.token())).toBe('subject');
    state.bytes++;
    await expect(nameOf(authentication, await issuing.token({ kid: 'key-9' }))).rejects.toMatchObject(
      unauthorized,
    );
    expect(failures).toMatchObject([{ cause: { message: 'The answer has more than 262144 bytes' } }]);
    await vi.waitFor(() => expect(state.cutOff).toBeGreaterThan(0));
  });

  test('are asked for at most once a second while there are none', async () => {
    let server: KeyServer | undefined;
    const { issuing, authentication, failures } = await verifying(async (from) => {
      server = await served(from);
      server.isUp = false;
      return keySource(settingsOf({ jwksUri: server.url }));
    });
    const token = await issuing.token();
    await expect(nameOf(authentication, token)).rejects.toMatchObject(unavailable);
    await expect(nameOf(authentication, token)).rejects.toMatchObject(unavailable);
    expect([server?.asked(), failures.length]).toEqual([1, 1]);
    Object.assign(server ?? {}, { isUp: true });
    await vi.waitFor(async () => expect(await nameOf(authentication, token)).toBe('subject'), {
      timeout: 10_000,
    });
  });
});

/** The address of a server that redirects to another address. */
function redirectTo(url: string): Promise<string> {
  return servedBy((_request, response) => response.writeHead(302, { location: url }).end());
}

/** The address of a server that answers in this way. */
async function servedBy(answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return `http://127.0.0.1:${port}/jwks`;
}

async function keyFile(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'jwks-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  return join(folder, 'jwks.json');
}

describe('the keys in a file', () => {
  test('are read again when the file changes, and stay valid while it is damaged', async () => {
    const file = await keyFile();
    const { issuing, authentication } = await verifying(async (from) => {
      await writeFile(file, JSON.stringify(await from.keys()));
      return { ...keySource(settingsOf({ jwksFile: file })), refreshMs: 0, cooldownMs: 0 };
    });
    const former = await issuing.token();
    expect(await nameOf(authentication, former)).toBe('subject');
    await writeFile(file, '{ "keys": [');
    expect(await nameOf(authentication, former)).toBe('subject');
    await issuing.rotate('key-2', { overlap: false });
    await writeFile(file, JSON.stringify(await issuing.keys()));
    expect(await nameOf(authentication, await issuing.token({ subject: 'next' }))).toBe('next');
    await vi.waitFor(() => expect(nameOf(authentication, former)).rejects.toMatchObject(unauthorized));
  });

  test('that cannot be read in time are not waited for, until they are there', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const gate = Promise.withResolvers<void>();
    const state = { loads: 0 };
    const { issuing, authentication, failures } = await verifying((from) => ({
      load: async () => {
        state.loads++;
        await gate.promise;
        return from.keys();
      },
      refreshMs: 1_000,
      cooldownMs: 1_000,
    }));
    const token = await issuing.token();
    const first = nameOf(authentication, token);
    first.catch(() => undefined);
    await vi.advanceTimersByTimeAsync(5_000);
    await expect(first).rejects.toMatchObject(unavailable);
    await expect(nameOf(authentication, token)).rejects.toMatchObject(unavailable);
    expect([state.loads, failures.length]).toEqual([1, 1]);
    gate.resolve();
    await vi.waitFor(async () => expect(await nameOf(authentication, token)).toBe('subject'));
  });

  test('that cannot be read leave tokens unverified', async () => {
    const file = await keyFile();
    const { issuing, authentication, failures } = await verifying(() =>
      keySource(settingsOf({ jwksFile: file })),
    );
    await expect(nameOf(authentication, await issuing.token())).rejects.toMatchObject(unavailable);
    expect(failures).toMatchObject([{ code: 'ENOENT' }]);
  });
});

describe('keys that are read for long', () => {
  test('leave no timer behind with each read, whether it succeeds or fails', async () => {
    const state = { isDown: false };
    const keys = new KeySet(
      {
        load: () => (state.isDown ? Promise.reject(new Error('down')) : Promise.resolve({ keys: [] })),
        refreshMs: -1,
        cooldownMs: 0,
      },
      () => undefined,
    );
    const left = await leftBehind(async (number) => {
      state.isDown = number % 2 === 1;
      keys.preload();
      await keys.current();
    });
    expect(left).toEqual([]);
  });

  test('that fail after requests have given up on them end no process, and are read again', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const reads = [Promise.withResolvers<never>(), Promise.withResolvers<never>()];
    const failures: unknown[] = [];
    let loads = 0;
    const load = (): Promise<never> => reads[loads++]?.promise ?? Promise.reject(new Error('no more'));
    const keys = new KeySet({ load, refreshMs: 1_000, cooldownMs: 0 }, (error) => failures.push(error));
    const unhandled = await unhandledIn(async () => {
      const first = Promise.resolve(keys.find({ alg: 'ES256' }, {} as never));
      first.catch(() => undefined);
      const second = Promise.resolve(keys.find({ alg: 'ES256' }, {} as never));
      second.catch(() => undefined);
      expect(loads).toBe(1);
      await vi.advanceTimersByTimeAsync(5_000);
      await expect(first).rejects.toMatchObject(unavailable);
      await expect(second).rejects.toMatchObject(unavailable);
      reads[0]?.reject(new Error('down'));
    });
    expect([unhandled, failures.map(String)]).toEqual([
      [],
      ['Error: The keys were not read within 5000 ms', 'Error: down'],
    ]);
    await vi.advanceTimersByTimeAsync(1_000);
    keys.preload();
    expect(loads).toBe(2);
  });
});
