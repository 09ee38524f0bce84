import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { TestIssuer, type TokenOptions, audience, issuer } from '../../test/test-issuer.js';
import { Authentication } from './authentication.js';
import type { KeySource } from './key-set.js';
import { jwtSchema } from './security-settings.js';
import { VerifiedTokens } from './verified-tokens.js';

async function verifying(
  source: (issuing: TestIssuer) => Partial<KeySource> = () => ({}),
): Promise<{ readonly issuing: TestIssuer; readonly principalOf: (token: string) => Promise<object> }> {
  const issuing = await TestIssuer.create();
  const jwt = jwtSchema.parse({ issuer, audience, jwksFile: 'jwks.json' });
  const keys = { load: () => issuing.keys(), refreshMs: 60_000, cooldownMs: 0, ...source(issuing) };
  const authentication = new Authentication(jwt, { realm: 'example', keys });
  // Tokens are remembered only with keys that were there before.
  await authentication.principalOf(new Headers({ authorization: `Bearer ${await issuing.token()}` }));
  return {
    issuing,
    principalOf: (token) => authentication.principalOf(new Headers({ authorization: `Bearer ${token}` })),
  };
}

const unauthorized = { code: 'unauthorized' };

describe('a verified token', () => {
  test('is not verified again', async () => {
    const { issuing, principalOf } = await verifying();
    const token = await issuing.token({ subject: 'ada' });
    const principal = await principalOf(token);
    expect(principal).toMatchObject({ name: 'ada' });
    expect(await principalOf(token)).toBe(principal);
  });

  test('is not verified again after the same keys were read again', async () => {
    const state = { loads: 0 };
    const { issuing, principalOf } = await verifying((from) => ({
      load: () => {
        state.loads++;
        return from.keys();
      },
      refreshMs: 0,
    }));
    const token = await issuing.token();
    const principal = await principalOf(token);
    const before = state.loads;
    await vi.waitFor(async () => {
      expect(await principalOf(token)).toBe(principal);
      expect(state.loads).toBeGreaterThan(before + 1);
    });
  });

  test('is refused once it has expired', async () => {
    const { issuing, principalOf } = await verifying();
    vi.useFakeTimers({ toFake: ['Date'] });
    onTestFinished(() => void vi.useRealTimers());
    const token = await issuing.token({ expiresInS: 60 });
    const principal = await principalOf(token);
    vi.setSystemTime(Date.now() + 64_000);
    expect(await principalOf(token)).toBe(principal);
    vi.setSystemTime(Date.now() + 2_000);
    await expect(principalOf(token)).rejects.toMatchObject({ ...unauthorized, reason: 'ERR_JWT_EXPIRED' });
  });

  test('is refused as soon as its key is withdrawn', async () => {
    const { issuing, principalOf } = await verifying();
    const former = await issuing.token();
    await principalOf(former);
    await issuing.rotate('key-2', { overlap: false });
    await principalOf(await issuing.token());
    await expect(principalOf(former)).rejects.toMatchObject(unauthorized);
  });

  test('is not remembered if the keys have changed while it was verified', async () => {
    const { issuing, principalOf } = await verifying();
    const former = await issuing.token();
    const verify = crypto.subtle.verify.bind(crypto.subtle);
    const spied = vi.spyOn(crypto.subtle, 'verify');
    onTestFinished(() => spied.mockRestore());
    spied.mockImplementationOnce(async (...given) => {
      await issuing.rotate('key-2', { overlap: false });
      const next = await issuing.token();
      await principalOf(next);
      await principalOf(next);
      return verify(...given);
    });
    expect(await principalOf(former)).toMatchObject({ name: 'subject' });
    await expect(principalOf(former)).rejects.toMatchObject(unauthorized);
  });

  test('does not vouch for another one with the same content', async () => {
    const { issuing, principalOf } = await verifying();
    const token = await issuing.token();
    await principalOf(token);
    const [header, payload, signature = ''] = token.split('.');
    const other = `${signature.startsWith('A') ? 'B' : 'A'}${signature.slice(1)}`;
    await expect(principalOf(`${header}.${payload}.${other}`)).rejects.toMatchObject(unauthorized);
  });

  test.each<[string, TokenOptions]>([
    ['of a wrong audience', { audience: 'other' }],
    ['whose subject cannot be a name', { subject: 'a\0b' }],
  ])('%s is refused each time', async (_what, options) => {
    const { issuing, principalOf } = await verifying();
    const token = await issuing.token(options);
    await expect(principalOf(token)).rejects.toMatchObject(unauthorized);
    await expect(principalOf(token)).rejects.toMatchObject(unauthorized);
  });
});

describe('the remembered tokens', () => {
  const keys = {};
  const expiresAtS = Date.now() / 1_000 + 3_600;

  /** How many of so many tokens of a length are remembered, beginning with the last one. */
  function remembered(count: number, length: number): number {
    const tokens = new VerifiedTokens({ clockToleranceMs: 0 });
    tokens.principalOf('', keys);
    const all = Array.from({ length: count }, (_, index) => String(index).padEnd(length, '.'));
    for (const token of all) tokens.remember(token, { principal: { name: token }, expiresAtS }, keys);
    const found = all.map((token) => tokens.principalOf(token, keys)?.name === token);
    return found.length - 1 - found.lastIndexOf(false);
  }

  test('are at most 10,000, those that were used last', () => {
    expect(remembered(10_100, 10)).toBe(10_000);
  });

  test('have at most 8 MiB of characters together', () => {
    expect(remembered(1_100, 8_192)).toBe(1_024);
  });
});
