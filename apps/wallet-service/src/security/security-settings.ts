import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import * as z from 'zod';

import { parseSection } from '../process/parse-section.js';
import { auditSchema } from './audit-log.js';

/**
 * The algorithms that a list may have: those whose verifiers hold no secret. With `none` or with a secret that is a public key,
 * everybody could sign.
 */
const asymmetricAlgorithms = [
  ...(['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'] as const),
  ...(['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'] as const),
] as const;

const algorithm = z.enum(asymmetricAlgorithms, {
  error: `must be one of ${asymmetricAlgorithms.join(', ')}`,
});

const name = z.string({ error: 'must be a text' }).min(1, 'must not be empty');

/** Hosts to which nobody else can listen. */
const loopback = /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/i;

function hasCredentials({ username, password }: URL): boolean {
  return username !== '' || password !== '';
}

const address = z
  .url({ protocol: /^https?$/, error: 'must be an https URL' })
  .refine((url) => url.startsWith('https:') || loopback.test(new URL(url).hostname), {
    error: 'must be an https URL: whoever can change the keys on their way can sign tokens',
  })
  // `fetch` would refuse it at each reading, with an error that shows the password.
  .refine((url) => !hasCredentials(new URL(url)), {
    error: 'must not contain a user name or password: the keys are public',
  });

const clockToleranceMsMax = 60_000;
const tolerance = `must be a whole number from 0 to ${clockToleranceMsMax}`;

const jwt = z
  .strictObject({
    issuer: name,
    audience: name,
    jwksUri: address.optional(),
    jwksFile: name.optional(),
    algorithms: z
      .array(algorithm, { error: 'must be a list' })
      .min(1, 'must not be empty')
      .default(['RS256', 'PS256', 'ES256', 'EdDSA', 'Ed25519']),
    tokenType: name.optional(),
    rolesClaim: name.default('roles'),
    operatorRole: name.optional(),
    clockToleranceMs: z
      .int({ error: tolerance })
      .min(0, tolerance)
      .max(clockToleranceMsMax, tolerance)
      .default(5_000),
  })
  .refine(({ jwksUri, jwksFile }) => (jwksUri === undefined) !== (jwksFile === undefined), {
    error: 'needs either jwks-uri or jwks-file',
  });

/** What core passes on of `framework.security`. */
export const securitySchema = z.strictObject({
  jwt: jwt.optional(),
  audit: auditSchema.optional(),
});

/** How tokens are verified, and what they say. */
export type JwtSettings = z.output<typeof jwt>;

/** The section `framework.security`. Without `jwt`, everybody is answered. */
export type SecuritySettings = z.output<typeof securitySchema>;

/**
 * Reads the section `framework.security`.
 *
 * @throws ConfigurationError `invalid-configuration` with every fault
 */
export function securitySettings({ security }: Pick<FrameworkConfig, 'security'>): SecuritySettings {
  return parseSection('security', securitySchema, security);
}

const remedy = 'configure framework.security.jwt in the file of WALLET_CONFIG';

/**
 * Refuses to answer everybody where others than this computer's users could ask.
 *
 * @throws ConfigurationError `invalid-configuration` when the host is not the loopback address, or in production
 */
export function assertAlone({
  host,
  isProduction,
}: {
  readonly host: string;
  readonly isProduction: boolean;
}): void {
  const faults = [];
  if (!loopback.test(host)) {
    const message = `${host} would answer everybody on the network: ${remedy}, or use 127.0.0.1`;
    faults.push({ path: 'HOST', message });
  }
  if (isProduction)
    faults.push({ path: 'NODE_ENV', message: `is production, but everybody would be answered: ${remedy}` });
  if (faults.length > 0) throw new ConfigurationError(faults);
}
