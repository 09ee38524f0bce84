import {
  CompactSign,
  type CryptoKey,
  type JSONWebKeySet,
  type JWK,
  SignJWT,
  UnsecuredJWT,
  exportJWK,
  exportSPKI,
  generateKeyPair,
} from 'jose';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The claims `iss` and `aud` of valid tokens of the {@link TestIssuer}. */
export const issuer = 'https://id.example.com';
export const audience = 'wallet-service';

interface Pair {
  readonly kid: string;
  readonly alg: string;
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
}

/** The differences of a token from a valid one. */
export interface TokenOptions {
  readonly subject?: unknown;
  readonly roles?: unknown;
  readonly issuer?: string;
  readonly audience?: string | readonly string[];
  /** In seconds from now. Default: 300. */
  readonly expiresInS?: number | undefined;
  /** In seconds from now. */
  readonly notBeforeInS?: number;
  readonly kid?: string | undefined;
  /** The header `typ`. Default: none. */
  readonly type?: string;
}

/** Makes tokens, and serves the public keys to them. */
export class TestIssuer {
  #pair: Pair;
  #published: readonly Pair[];

  readonly #otherPair: Pair;

  private constructor(pair: Pair, otherPair: Pair) {
    this.#pair = pair;
    this.#otherPair = otherPair;
    this.#published = [pair, otherPair];
  }

  static async create(): Promise<TestIssuer> {
    return new TestIssuer(await newPair('ES256', 'key-1'), await newPair('ES384', 'key-es384'));
  }

  /** The public keys. */
  async keys(): Promise<JSONWebKeySet> {
    const keys = this.#published.map(async ({ publicKey, kid, alg }): Promise<JWK> => ({
      ...(await exportJWK(publicKey)),
      kid,
      alg,
      use: 'sig',
    }));
    return { keys: await Promise.all(keys) };
  }

  /** Signs with a new key from now on. The former keys stay published if there is an overlap. */
  async rotate(kid: string, { overlap }: { readonly overlap: boolean }): Promise<void> {
    this.#pair = await newPair(this.#pair.alg, kid);
    this.#published = overlap ? [...this.#published, this.#pair] : [this.#pair];
  }

  /** A valid token of a subject, with these differences. */
  token(options: TokenOptions = {}): Promise<string> {
    const { alg, privateKey } = this.#pair;
    const { kid, type } = { ...this.#pair, ...options };
    return claims(new SignJWT(ownClaims(options)), options)
      .setProtectedHeader({
        alg,
        ...(kid !== undefined && { kid }),
        ...(type !== undefined && { typ: type }),
      })
      .sign(privateKey);
  }

  /** A token that is signed with another key under the name of the issuer's. */
  async forged(options: TokenOptions = {}): Promise<string> {
    const { alg, kid } = this.#pair;
    const { privateKey } = await newPair(alg, kid);
    return claims(new SignJWT(ownClaims(options)), options)
      .setProtectedHeader({ alg, kid })
      .sign(privateKey);
  }

  /** A token that is signed with a published key, but by an algorithm that the service does not list. */
  ofOtherAlgorithm(options: TokenOptions = {}): Promise<string> {
    const { alg, kid, privateKey } = this.#otherPair;
    return claims(new SignJWT(ownClaims(options)), options)
      .setProtectedHeader({ alg, kid })
      .sign(privateKey);
  }

  /** A token with these claims and no others, also of wrong types. */
  withClaims(payload: object): Promise<string> {
    const { alg, kid, privateKey } = this.#pair;
    return new CompactSign(Buffer.from(JSON.stringify(payload)))
      .setProtectedHeader({ alg, kid })
      .sign(privateKey);
  }

  /** A token without a signature. */
  unsigned(options: TokenOptions = {}): string {
    return claims(new UnsecuredJWT(ownClaims(options)), options).encode();
  }

  /** A token that is signed with the public key, as if that were a secret. */
  async signedWithPublicKey(options: TokenOptions = {}): Promise<string> {
    const { publicKey, kid } = this.#pair;
    const secret = new TextEncoder().encode(await exportSPKI(publicKey));
    return claims(new SignJWT(ownClaims(options)), options)
      .setProtectedHeader({ alg: 'HS256', kid })
      .sign(secret);
  }
}

async function newPair(alg: string, kid: string): Promise<Pair> {
  return { kid, alg, ...(await generateKeyPair(alg, { extractable: true })) };
}

/** The claims of a token that a test may set to anything. */
function ownClaims(options: TokenOptions): Record<string, unknown> {
  const { roles, subject = 'subject' } = options;
  const isSubjectLeftOut = 'subject' in options && options.subject === undefined;
  return { ...(roles !== undefined && { roles }), ...(!isSubjectLeftOut && { sub: subject }) };
}

/** Sets the claims of a token; an option that is `undefined` leaves its claim out. */
function claims<Token extends SignJWT | UnsecuredJWT>(token: Token, options: TokenOptions): Token {
  const nowS = Math.floor(Date.now() / 1_000);
  const { expiresInS = 300, notBeforeInS } = options;
  token.setIssuer(options.issuer ?? issuer).setAudience([options.audience ?? audience].flat());
  token.setIssuedAt(nowS);
  if (!('expiresInS' in options) || options.expiresInS !== undefined)
    token.setExpirationTime(nowS + expiresInS);
  if (notBeforeInS !== undefined) token.setNotBefore(nowS + notBeforeInS);
  return token;
}

/** An address that serves the keys of an issuer while it is up. */
export interface KeyServer {
  readonly url: string;
  /** The number of requests so far. */
  readonly asked: () => number;
  /** Whether it serves the keys; otherwise it answers with status 500. */
  isUp: boolean;
  readonly close: () => Promise<void>;
}

/** Serves the keys of an issuer on a free port of this computer. */
export async function serveKeys(from: TestIssuer): Promise<KeyServer> {
  let asked = 0;
  const state = { isUp: true };
  const server = createServer((_request, response) => {
    asked++;
    if (!state.isUp) {
      response.writeHead(500).end();
      return;
    }
    void from.keys().then((keys) => response.writeHead(200).end(JSON.stringify(keys)));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return Object.assign(state, {
    url: `http://127.0.0.1:${port}/jwks`,
    asked: () => asked,
    close: () => new Promise<void>((resolve) => void server.close(() => resolve())),
  });
}
