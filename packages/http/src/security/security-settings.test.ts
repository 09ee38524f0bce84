import { describe, expect, test } from 'vitest';

import { audience, issuer } from '../../test/test-issuer.js';
import { parseSection } from '../parse-section.js';
import { assertLoopbackOnly, securitySchema } from './security-settings.js';

/** The paths of the faults of a section. */
function faultsOf(security: Record<string, unknown>): readonly string[] {
  try {
    parseSection('security', securitySchema, security);
  } catch (error) {
    return (error as { readonly faults: readonly { readonly path: string }[] }).faults.map(
      ({ path }) => path,
    );
  }
  return [];
}

describe('the section security', () => {
  const jwt = { issuer, audience, jwksUri: 'https://id.example.com/jwks' };

  test('may be empty', () => {
    expect(parseSection('security', securitySchema, {})).toEqual({});
  });

  test('has defaults', () => {
    expect(parseSection('security', securitySchema, { jwt }).jwt).toEqual({
      ...jwt,
      algorithms: ['RS256', 'PS256', 'ES256', 'EdDSA', 'Ed25519'],
      rolesClaim: 'roles',
      clockToleranceMs: 5_000,
    });
  });

  test.each([
    ['no issuer', { ...jwt, issuer: undefined }, 'framework.security.jwt.issuer'],
    ['no audience', { ...jwt, audience: undefined }, 'framework.security.jwt.audience'],
    ['no keys', { issuer, audience }, 'framework.security.jwt'],
    ['keys in two places', { ...jwt, jwksFile: 'jwks.json' }, 'framework.security.jwt'],
    [
      'keys without encryption',
      { ...jwt, jwksUri: 'http://id.example.com' },
      'framework.security.jwt.jwks-uri',
    ],
    [
      'a password in the address of the keys',
      { ...jwt, jwksUri: 'https://user:secret@id.example.com/jwks' },
      'framework.security.jwt.jwks-uri',
    ],
    ['tokens without signatures', { ...jwt, algorithms: ['none'] }, 'framework.security.jwt.algorithms[0]'],
    ['secrets as keys', { ...jwt, algorithms: ['ES256', 'HS256'] }, 'framework.security.jwt.algorithms[1]'],
    ['no algorithm', { ...jwt, algorithms: [] }, 'framework.security.jwt.algorithms'],
    [
      'a tolerance of hours',
      { ...jwt, clockToleranceMs: 3_600_000 },
      'framework.security.jwt.clock-tolerance-ms',
    ],
    ['an unknown key', { ...jwt, secret: 'x' }, 'framework.security.jwt.secret'],
  ])('is refused with %s', (_what, settings, path) => {
    expect(faultsOf({ jwt: settings })).toEqual([path]);
  });

  test('refuses a key of hashes where no line has a hash', () => {
    const audit = { file: 'audit.jsonl', hashKeyFile: 'key' };
    expect(faultsOf({ audit })).toEqual(['framework.security.audit.hash-key-file']);
    expect(faultsOf({ audit: { ...audit, hashChain: true } })).toEqual([]);
  });

  test('may name keys of this computer without encryption', () => {
    expect(faultsOf({ jwt: { ...jwt, jwksUri: 'http://localhost:8081/jwks' } })).toEqual([]);
  });
});

describe('a service that answers everybody', () => {
  const remedy = 'configure tokens';

  test.each(['127.0.0.1', '127.1.2.3', 'localhost', '::1'])('may listen on %s', (host) => {
    expect(() => assertLoopbackOnly({ host, isProduction: false, remedy })).not.toThrow();
  });

  test.each(['0.0.0.0', '::', '10.0.0.1', 'wallets.example.com', '127.0.0.1.example.com', ''])(
    'refuses to listen on %j',
    (host) => {
      expect(() => assertLoopbackOnly({ host, isProduction: false, remedy })).toThrow(
        expect.objectContaining({ code: 'invalid-configuration' }),
      );
    },
  );

  test('refuses to start in production', () => {
    expect(() => assertLoopbackOnly({ host: '127.0.0.1', isProduction: true, remedy })).toThrow(
      expect.objectContaining({ code: 'invalid-configuration' }),
    );
  });
});
