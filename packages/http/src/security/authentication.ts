import type { Principal } from '@framework/core';
import { isStorableText } from '@framework/core/adapter';
import { type JWTPayload, errors, jwtVerify } from 'jose';

import { ProblemError } from '../problem/problem-error.js';
import { KeySet, type KeySource, KeysUnavailableError, keySource } from './key-set.js';
import type { JwtSettings } from './security-settings.js';
import { VerifiedTokens } from './verified-tokens.js';

/**
 * Ends a request without a valid token, with the code `unauthorized`. Its header `www-authenticate` (RFC 6750) contains the realm, and
 * whether there was a token.
 */
export class UnauthorizedError extends ProblemError {
  /** The reason for the log, without any part of the token. */
  readonly reason: string;

  constructor(
    reason: string,
    { realm, isTokenGiven }: { readonly realm: string; readonly isTokenGiven: boolean },
  ) {
    const challenge = `Bearer realm="${realm}"${isTokenGiven ? ', error="invalid_token"' : ''}`;
    super('unauthorized', 'A valid bearer token is needed', { headers: { 'www-authenticate': challenge } });
    this.reason = reason;
  }
}

/** The longest subject that can be the name of a principal, in characters. */
const subjectCharactersMax = 255;
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const bearer = /^Bearer +(\S+) *$/i;

/** What an {@link Authentication} needs besides its settings. */
export interface AuthenticationOptions {
  /** The protection space in challenges (RFC 9110, section 11.5), such as the name of the service; without quotation marks. */
  readonly realm: string;
  /** Called when the keys cannot be read, once for each reason; earlier keys stay valid. Default: does nothing. */
  readonly onKeysFailure?: ((error: unknown) => void) | undefined;
  /** The source of the public keys. Default: the URL or the file of the settings. */
  readonly keys?: KeySource;
}

/** Identifies the sender of a request by its bearer token, a JWT. */
export class Authentication {
  readonly #settings: JwtSettings;
  readonly #realm: string;
  readonly #keys: KeySet;
  readonly #verifiedTokens: VerifiedTokens;

  constructor(settings: JwtSettings, options: AuthenticationOptions) {
    const { realm, onKeysFailure = () => undefined, keys = keySource(settings) } = options;
    this.#settings = settings;
    this.#realm = realm;
    this.#keys = new KeySet(keys, onKeysFailure);
    this.#verifiedTokens = new VerifiedTokens(settings);
  }

  /** Begins to read the keys, before the first request needs them. */
  preload(): void {
    this.#keys.preload();
  }

  /**
   * The principal of a request: its name is the subject of the token, its roles and claims are the token's. A subject that is a UUID
   * becomes lower case, because idempotency keys belong to a name as it is written.
   *
   * @throws UnauthorizedError when there is no valid token
   * @throws KeysUnavailableError when no keys have been read so far
   */
  async principalOf(headers: Headers): Promise<Principal> {
    const authorization = headers.get('authorization') ?? '';
    if (!/^Bearer\b/i.test(authorization))
      throw new UnauthorizedError('there is no bearer token', { realm: this.#realm, isTokenGiven: false });
    const [, token] = bearer.exec(authorization) ?? [];
    if (token === undefined) throw this.#invalid('the token is malformed');
    const keys = await this.#keys.current();
    return this.#verifiedTokens.principalOf(token, keys) ?? (await this.#verify(token, keys));
  }

  /** @param keys the present keys, which may be others when the token is verified */
  async #verify(token: string, keys: object | undefined): Promise<Principal> {
    const claims = await this.#claimsOf(token);
    const { sub, exp = 0 } = claims;
    if (!isStorableText(sub) || sub === '' || sub.length > subjectCharactersMax)
      throw this.#invalid('the subject cannot be a name');
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
      throw this.#invalid(reasonOf(error));
    }
  }

  /** Tries each key of the algorithm, such as the former and the next one, if the token does not name its key. */
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

  #invalid(reason: string): UnauthorizedError {
    return new UnauthorizedError(reason, { realm: this.#realm, isTokenGiven: true });
  }
}

function ofOtherKey(error: unknown): undefined {
  if (!(error instanceof errors.JWSSignatureVerificationFailed)) throw error;
}

/** The reason of a refusal, for the log. A key that cannot be used, such as one that is too short, verifies nothing. */
function reasonOf(error: unknown): string {
  if (error instanceof errors.JWTClaimValidationFailed) return `${error.code} of ${error.claim}`;
  if (error instanceof errors.JOSEError) return error.code;
  return `its key cannot be used: ${error instanceof Error ? error.message : String(error)}`;
}

/** The roles in a claim: a list of texts, or one text with words separated by spaces, as in `scope`. */
function rolesOf(claim: unknown): readonly string[] {
  if (typeof claim === 'string') return claim.split(' ').filter((role) => role !== '');
  return Array.isArray(claim) ? claim.filter((role) => typeof role === 'string') : [];
}
