import { beforeAll, describe, expect, test } from 'vitest';

import { TestIssuer, type TokenOptions, audience, issuer } from '../../test/test-issuer.js';
import { Authentication, UnauthorizedError } from './authentication.js';
import { jwtSchema } from './security-settings.js';

let issuing: TestIssuer;
beforeAll(async () => {
  issuing = await TestIssuer.create();
});

function authenticationWith(settings: object = {}): Authentication {
  const jwt = jwtSchema.parse({ issuer, audience, jwksFile: 'jwks.json', ...settings });
  const keys = { load: () => issuing.keys(), refreshMs: Infinity, cooldownMs: 0 };
  return new Authentication(jwt, { realm: 'example', keys });
}

/** The principal of a request with this header. */
const principalOf = (authorization: string | undefined, settings?: object) =>
  authenticationWith(settings).principalOf(new Headers(authorization === undefined ? {} : { authorization }));

const ofToken = async (options: TokenOptions, settings?: object) =>
  principalOf(`Bearer ${await issuing.token(options)}`, settings);

describe('a bearer token', () => {
  test('makes the principal, with its subject, roles and claims', async () => {
    const principal = await ofToken({ subject: 'ada', roles: ['operator', 7, 'auditor'] });
    expect(principal).toMatchObject({ name: 'ada', roles: ['operator', 'auditor'] });
    expect(principal.claims).toMatchObject({ iss: issuer, sub: 'ada' });
  });

  test.each([
    ['a text with words', 'operator auditor', ['operator', 'auditor']],
    ['missing', undefined, []],
    ['neither a list nor a text', 7, []],
  ])('whose roles are %s has these roles', async (_what, roles, expected) => {
    expect(await ofToken({ roles })).toMatchObject({ roles: expected });
  });

  test.each([
    ['a UUID', 'AD4F3C1A-7B7E-4000-8000-5D2F4A6B8C0D', 'ad4f3c1a-7b7e-4000-8000-5d2f4a6b8c0d'],
    ['any other text', 'Ada', 'Ada'],
  ])('whose subject is %s makes this name of it', async (_what, subject, name) => {
    expect(await ofToken({ subject })).toMatchObject({ name });
  });

  test('has its roles in the configured claim', async () => {
    expect(await ofToken({ roles: ['operator'] }, { rolesClaim: 'groups' })).toMatchObject({ roles: [] });
  });

  test('is accepted whatever the case of the scheme', async () => {
    expect(await principalOf(`bearer ${await issuing.token()}`)).toMatchObject({ name: 'subject' });
  });

  test('for several audiences is accepted if the service is among them', async () => {
    expect(await ofToken({ audience: ['other', audience] })).toMatchObject({ name: 'subject' });
  });

  test.each([
    ['that has just expired', { expiresInS: -3 }],
    ['that is valid in a moment', { notBeforeInS: 3 }],
  ])('%s is accepted within the tolerance for clocks that differ', async (_what, options) => {
    expect(await ofToken(options)).toMatchObject({ name: 'subject' });
    await expect(ofToken(options, { clockToleranceMs: 0 })).rejects.toBeInstanceOf(UnauthorizedError);
  });

  test.each<[string, TokenOptions]>([
    ['that has expired', { expiresInS: -60 }],
    ['that never expires', { expiresInS: undefined }],
    ['that is not valid yet', { notBeforeInS: 60 }],
    ['for another audience', { audience: 'other' }],
    ['of another issuer', { issuer: 'https://evil.example.com' }],
    ['with an unknown key', { kid: 'key-9' }],
    ['without a subject', { subject: undefined }],
    ['with an empty subject', { subject: '' }],
    ['with a subject that is null', { subject: null }],
    ['with a subject that is a number', { subject: 7 }],
    ['with a subject that is too long', { subject: 'x'.repeat(256) }],
    ['with a subject that no database can store', { subject: 'a\0b' }],
  ])('%s is refused', async (_what, options) => {
    await expect(ofToken(options)).rejects.toMatchObject({
      code: 'unauthorized',
      headers: { 'www-authenticate': 'Bearer realm="example", error="invalid_token"' },
    });
  });

  test.each([
    ['the subject', { sub: ['ada'] }],
    ['the end', { exp: '4102444800' }],
    ['the end', { exp: null }],
    ['the beginning', { nbf: null }],
    ['the audience', { aud: { [audience]: true } }],
    ['the issuer', { iss: [issuer] }],
  ])('with a claim of a wrong type is refused: %s as %j', async (_what, claims) => {
    const valid = { iss: issuer, aud: audience, sub: 'ada', exp: Math.ceil(Date.now() / 1_000) + 300 };
    await expect(principalOf(`Bearer ${await issuing.withClaims(valid)}`)).resolves.toBeDefined();
    const token = await issuing.withClaims({ ...valid, ...claims });
    await expect(principalOf(`Bearer ${token}`)).rejects.toBeInstanceOf(UnauthorizedError);
  });

  test('with a subject of 255 characters is accepted', async () => {
    const subject = 'x'.repeat(255);
    expect(await ofToken({ subject })).toMatchObject({ name: subject });
  });

  test.each<[string, () => string | Promise<string>]>([
    ['without a signature', () => issuing.unsigned()],
    ['signed with the public key as a secret', () => issuing.signedWithPublicKey()],
    ['signed by another issuer', () => issuing.forged()],
    ['of an algorithm that is not listed', () => issuing.ofOtherAlgorithm()],
    ['that is not a token', () => 'x.y.z'],
    ['with a part missing', async () => (await issuing.token()).split('.').slice(0, 2).join('.')],
    ['after which something follows', async () => `${await issuing.token()} more`],
    ['that occurs twice', async () => `${await issuing.token()}, Bearer ${await issuing.token()}`],
    ['that is empty', () => ''],
  ])('%s is refused', async (_what, token) => {
    await expect(principalOf(`Bearer ${await token()}`)).rejects.toMatchObject({
      code: 'unauthorized',
      headers: { 'www-authenticate': expect.stringContaining('invalid_token') as string },
    });
  });

  test.each([undefined, '', 'Basic YWRhOng=', 'Bearerless x'])(
    'is asked for if there is %j',
    async (header) => {
      await expect(principalOf(header)).rejects.toMatchObject({
        code: 'unauthorized',
        headers: { 'www-authenticate': 'Bearer realm="example"' },
      });
    },
  );

  test.each(['at+jwt', 'application/at+jwt', 'AT+JWT'])(
    'of the configured type is accepted as %s',
    async (type) => {
      expect(await ofToken({ type }, { tokenType: 'at+jwt' })).toMatchObject({ name: 'subject' });
    },
  );

  test.each(['JWT', undefined])('of another type than the configured one is refused: %s', async (type) => {
    const refused = ofToken(type === undefined ? {} : { type }, { tokenType: 'at+jwt' });
    await expect(refused).rejects.toMatchObject({ reason: 'ERR_JWT_CLAIM_VALIDATION_FAILED of typ' });
    expect(await ofToken(type === undefined ? {} : { type })).toMatchObject({ name: 'subject' });
  });

  test('does not appear in the reason why it is refused', async () => {
    const token = await issuing.token({ audience: 'other', subject: 'ada' });
    const error: unknown = await principalOf(`Bearer ${token}`).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ reason: 'ERR_JWT_CLAIM_VALIDATION_FAILED of aud' });
  });
});
