import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type CryptoKey, SignJWT, exportJWK, generateKeyPair } from 'jose';

const alg = 'ES256';
const kid = 'bench';
const issuer = 'https://id.example.com';
const audience = 'wallet-service';

/** Signs tokens for the callers of a benchmark. */
export class BenchIssuer {
  /** The section `framework.security` of a service that accepts the tokens. */
  readonly security: object;
  readonly #key: CryptoKey;
  readonly #directory: string;

  private constructor(key: CryptoKey, directory: string, jwksFile: string) {
    this.security = { jwt: { issuer, audience, jwksFile, algorithms: [alg] } };
    this.#key = key;
    this.#directory = directory;
  }

  /** Makes a key, and writes the public one to a file. */
  static async create(): Promise<BenchIssuer> {
    const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
    const directory = await mkdtemp(join(tmpdir(), 'bench-issuer-'));
    const jwksFile = join(directory, 'keys.json');
    await writeFile(
      jwksFile,
      JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid, alg, use: 'sig' }] }),
    );
    return new BenchIssuer(privateKey, directory, jwksFile);
  }

  /** A token of a subject that is valid for an hour. */
  token(subject: string): Promise<string> {
    return new SignJWT()
      .setProtectedHeader({ alg, kid })
      .setIssuer(issuer)
      .setAudience(audience)
      .setSubject(subject)
      .setIssuedAt()
      .setExpirationTime('1h')
      .sign(this.#key);
  }

  /** Removes the file. */
  async close(): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
  }
}
