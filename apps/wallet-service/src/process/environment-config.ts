import { type SectionSchemas, withEnvironment as withValues } from '@framework/cli/config';
import { relayKeys } from '@framework/relay/config';

import { httpSchema } from '../http/http-settings.js';
import { securitySchema } from '../security/security-settings.js';
import { metricsSchema } from './service-metrics.js';
import { operatorSchema } from './operator-listener.js';

/** The schemas of the sections that core only passes on. */
const sections: SectionSchemas = {
  relay: relayKeys,
  http: httpSchema,
  security: securitySchema,
  metrics: metricsSchema,
  operator: operatorSchema,
};

/**
 * Puts the values of `FRAMEWORK_…` variables into a configuration tree, where they replace those of the file.
 *
 * @param tree what the file contains; it is not changed
 * @throws ConfigurationError `invalid-configuration` with every variable that has no key, contradicts another one or cannot be read;
 * values are never shown
 */
export function withEnvironment(tree: unknown, environment: NodeJS.ProcessEnv): unknown {
  return withValues(tree, environment, sections);
}
