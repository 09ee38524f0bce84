import type { FrameworkConfig } from '@framework/core';
import { parseSection } from '@framework/http';
import { securitySchema as baseSchema, jwtSchema } from '@framework/http/security';
import * as z from 'zod';

const role = z.string({ error: 'must be a text' }).min(1, 'must not be empty');

/** The section `framework.security`, with the role of operators. */
export const securitySchema = baseSchema.extend({
  jwt: jwtSchema.safeExtend({ operatorRole: role.optional() }).optional(),
});

/** The section `framework.security`. Without `jwt`, every request is served. */
export type SecuritySettings = z.output<typeof securitySchema>;

/**
 * Reads the section `framework.security`.
 *
 * @throws ConfigurationError `invalid-configuration` with every fault
 */
export function securitySettings({ security }: Pick<FrameworkConfig, 'security'>): SecuritySettings {
  return parseSection('security', securitySchema, security);
}
