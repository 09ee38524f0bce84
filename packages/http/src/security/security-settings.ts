import { ConfigurationError } from '@framework/core';
import type { ConfigurationIssue } from '@framework/core/adapter';
import * as z from 'zod';

/** The algorithms whose verifiers hold no secret. With `none`, or with a public key as a secret, any client could sign tokens. */
const asymmetricAlgorithms = [
  ...(['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'] as const),
  ...(['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'] as const),
] as const;

const algorithm = z.enum(asymmetricAlgorithms, {
  error: `must be one of ${asymmetricAlgorithms.join(', ')}`,
});

const name = z.string({ error: 'must be a text' }).min(1, 'must not be empty');

/** The hosts that only processes of the same computer reach. */
const loopback = /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/i;

function hasCredentials({ username, password }: URL): boolean {
  return username !== '' || password !== '';
}

const keysUrl = z
  .url({ protocol: /^https?$/, error: 'must be an https URL' })
  .refine((url) => url.startsWith('https:') || loopback.test(new URL(url).hostname), {
    error: 'must be an https URL: whoever can change the keys on their way can sign tokens',
  })
  // `fetch` would reject it at each read, with an error that shows the password.
  .refine((url) => !hasCredentials(new URL(url)), {
    error: 'must not contain a user name or password: the keys are public',
  });

const clockToleranceMsMax = 60_000;
const tolerance = `must be a whole number from 0 to ${clockToleranceMsMax}`;

/**
 * The schema of the section `framework.security.jwt`: the issuer of the tokens, and the place of its public keys. An application adds
 * keys of its own with `safeExtend`.
 */
export const jwtSchema = z
  .strictObject({
    issuer: name,
    audience: name,
    jwksUri: keysUrl.optional(),
    jwksFile: name.optional(),
    algorithms: z
      .array(algorithm, { error: 'must be a list' })
      .min(1, 'must not be empty')
      .default(['RS256', 'PS256', 'ES256', 'EdDSA', 'Ed25519']),
    tokenType: name.optional(),
    rolesClaim: name.default('roles'),
    clockToleranceMs: z
      .int({ error: tolerance })
      .min(0, tolerance)
      .max(clockToleranceMsMax, tolerance)
      .default(5_000),
  })
  .refine(({ jwksUri, jwksFile }) => (jwksUri === undefined) !== (jwksFile === undefined), {
    error: 'needs either jwks-uri or jwks-file',
  });

/** The settings for the verification of tokens. */
export type JwtSettings = z.output<typeof jwtSchema>;

/** The schema of the section `framework.security.audit`: the file of the audit log, and the protection of its lines. */
export const auditSchema = z
  .strictObject({
    file: z.string().min(1, 'is empty'),
    hashChain: z.boolean().default(false),
    hashKeyFile: z.string().min(1, 'is empty').optional(),
    sync: z.boolean().default(false),
  })
  .refine(({ hashChain, hashKeyFile }) => hashChain || hashKeyFile === undefined, {
    path: ['hashKeyFile'],
    error: 'needs hash-chain: true, without which lines have no hashes',
  });

/** The settings of the audit log. */
export type AuditSettings = z.output<typeof auditSchema>;

/** The schema of the section `framework.security`, whose parts are optional. Without `jwt`, requests need no token. */
export const securitySchema = z.strictObject({
  jwt: jwtSchema.optional(),
  audit: auditSchema.optional(),
});

/**
 * Refuses to serve requests without tokens to other computers, or in production.
 *
 * @param options.host the address to listen on: the value of `HOST`
 * @param options.isProduction whether `NODE_ENV` is `production`
 * @param options.remedy how to configure tokens, as a clause of the message
 * @throws ConfigurationError `invalid-configuration` when the host is not the loopback address, or in production
 */
export function assertLoopbackOnly({
  host,
  isProduction,
  remedy,
}: {
  readonly host: string;
  readonly isProduction: boolean;
  readonly remedy: string;
}): void {
  const faults: ConfigurationIssue[] = [];
  if (!loopback.test(host)) {
    const message = `${host} would answer everybody on the network: ${remedy}, or use 127.0.0.1`;
    faults.push({ path: 'HOST', message });
  }
  if (isProduction)
    faults.push({ path: 'NODE_ENV', message: `is production, but everybody would be answered: ${remedy}` });
  if (faults.length > 0) throw new ConfigurationError(faults);
}
