import type { Principal } from '@framework/core';
import { isStorableText } from '@framework/core/adapter';
import { type JWTPayload, errors, jwtVerify } from 'jose';

import { KeySet, type KeySource, KeysUnavailableError, keySource } from './key-set.js';
import type { JwtSettings } from './security-settings.js';
import { VerifiedTokens } from './verified-tokens.js';

/** The request has no token, or one that proves nothing. */
export class UnauthorizedError extends Error {
  override readonly name = 'UnauthorizedError';
  /** Why, for the log: a code without anything of the token. */
  readonly reason: string;
  /** The value of `WWW-Authenticate` (RFC 6750), which says only whether there was a token. */
  readonly challenge: string;

  constructor(reason: string, { isTokenGiven }: { readonly isTokenGiven: boolean }) {
    super('A valid bearer token is needed');
    this.reason = reason;
    this.challenge = `Bearer realm="wallet-service"${isTokenGiven ? ', error="invalid_token"' : ''}`;
  }
}

/** The longest subject that can be the name of a principal. */
const subjectCharactersMax = 255;
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const bearer = /^Bearer +(\S+) *$/i;

/** Finds out from its bearer token who sends a request. */
export class Authentication {
  readonly #settings: JwtSettings;
  readonly #keys: KeySet;
  readonly #verifiedTokens: VerifiedTokens;

  /**
   * @param onKeysFailure called when the keys cannot be read, once for each reason; those that were read before stay valid.
   * Default: does nothing
   * @param source how the keys are read. Default: as the settings say
   */
  constructor(
    settings: JwtSettings,
    onKeysFailure: (error: unknown) => void = () => undefined,
    source: KeySource = keySource(settings),
  ) {
    this.#settings = settings;
    this.#keys = new KeySet(source, onKeysFailure);
    this.#verifiedTokens = new VerifiedTokens(settings);
  }

  /** Reads the keys, so that they are there for the first request. */
  preload(): void {
    this.#keys.preload();
  }

  /**
   * The principal of a request: its name is the subject of the token, a UUID in lower case, because idempotency keys belong to a name
   * as it is written. Its roles and claims are those of the token.
   *
   * @throws UnauthorizedError when there is no valid token
   * @throws KeysUnavailableError when no keys have been read so far
   */
  async principalOf(headers: Headers): Promise<Principal> {
    const authorization = headers.get('authorization') ?? '';
    if (!/^Bearer\b/i.test(authorization))
      throw new UnauthorizedError('there is no bearer token', { isTokenGiven: false });
    const [, token] = bearer.exec(authorization) ?? [];
    if (token === undefined) throw invalid('the token is malformed');
    const keys = await this.#keys.current();
    return this.#verifiedTokens.principalOf(token, keys) ?? (await this.#verify(token, keys));
  }

  /** @param keys the present keys, which may be others when the token is verified */
  async #verify(token: string, keys: object | undefined): Promise<Principal> {
    const claims = await this.#claimsOf(token);
    const { sub, exp = 0 } = claims;
    if (!isStorableText(sub) || sub === '' || sub.length > subjectCharactersMax)
      throw invalid('the subject cannot be a name');
    const principal: Principal = {
      name: uuid.test(sub) ? sub.toLowerCase() : sub,
      roles: rolesOf(claims[this.#settings.rolesClaim]),
      claims,
    };
    if (keys !== undefined) this.#verifiedTokens.remember(token, { principal, expiresAtS: exp }, keys);
    return principal;
  }

  async #claimsOf(token: string): Promise<JWTPayload> {
    try {
      return await this.#verified(token);
    } catch (error) {
      if (error instanceof KeysUnavailableError) throw error;
      throw invalid(reasonOf(error));
    }
  }

  /** A token that does not name its key may be signed with each that fits its algorithm, such as the former and the next one. */
  async #verified(token: string): Promise<JWTPayload> {
    const { issuer, audience, algorithms, tokenType: typ, clockToleranceMs } = this.#settings;
    const clockTolerance = clockToleranceMs / 1_000;
    const required = { issuer, audience, requiredClaims: ['sub', 'exp'], ...(typ !== undefined && { typ }) };
    const options = { ...required, algorithms, clockTolerance };
    try {
      return (await jwtVerify(token, this.#keys.find, options)).payload;
    } catch (error) {
      if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;
      for await (const key of error) {
        const verified = await jwtVerify(token, key, options).catch(ofOtherKey);
        if (verified !== undefined) return verified.payload;
      }
      throw new errors.JWSSignatureVerificationFailed();
    }
  }
}

function ofOtherKey(error: unknown): undefined {
  if (!(error instanceof errors.JWSSignatureVerificationFailed)) throw error;
}

/** Why a token is refused, for the log. A key that cannot be used, such as one that is too short, verifies nothing. */
function reasonOf(error: unknown): string {
  if (error instanceof errors.JWTClaimValidationFailed) return `${error.code} of ${error.claim}`;
  if (error instanceof errors.JOSEError) return error.code;
  return `its key cannot be used: ${error instanceof Error ? error.message : String(error)}`;
}

function invalid(reason: string): UnauthorizedError {
  return new UnauthorizedError(reason, { isTokenGiven: true });
}

/** The roles in a claim: a list of texts, or one text with words separated by spaces, as in `scope`. */
function rolesOf(claim: unknown): readonly string[] {
  if (typeof claim === 'string') return claim.split(' ').filter((role) => role !== '');
  return Array.isArray(claim) ? claim.filter((role) => typeof role === 'string') : [];
}
