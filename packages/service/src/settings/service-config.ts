import { type SectionSchemas, readConfigTree, withEnvironment } from '@framework/cli/config';
import { type FrameworkConfig, parseFrameworkConfig } from '@framework/core';
import { parseSection } from '@framework/http';
import { type HttpSettings, httpSchema, securitySchema } from '@framework/http/security';
import { relayKeys } from '@framework/relay/config';
import type * as z from 'zod';

import { operatorSchema } from '../listeners/operator-listener.js';
import { metricsSchema } from '../listeners/service-metrics.js';
import type { ServiceDescription } from '../service-definition.js';

type Sections = Pick<ServiceDescription, 'sections'>;

/** The sections that an application may extend. */
export interface ParsedSections {
  readonly http: HttpSettings;
  readonly security: z.output<typeof securitySchema>;
}

/**
 * Validates the sections `framework.http` and `framework.security`, and completes them with defaults.
 *
 * @throws ConfigurationError `invalid-configuration` with every fault of the first of them that has any
 */
export function parseSections(
  { sections = {} }: Sections,
  { http, security }: Pick<FrameworkConfig, 'http' | 'security'>,
): ParsedSections {
  return {
    security: parseSection('security', sections.security ?? securitySchema, security),
    http: parseSection('http', sections.http ?? httpSchema, http),
  };
}

/**
 * Completes the configuration of a service with the `FRAMEWORK_…` variables, which replace its values.
 *
 * @param tree what the file contains; it is not changed
 * @throws ConfigurationError `invalid-configuration` with every variable that has no key, contradicts another one or cannot be read;
 * values are never shown
 */
export function withVariables(
  { sections = {} }: Sections,
  tree: unknown,
  environment: NodeJS.ProcessEnv,
): unknown {
  const schemas: SectionSchemas = {
    relay: relayKeys,
    http: sections.http ?? httpSchema,
    security: sections.security ?? securitySchema,
    metrics: metricsSchema,
    operator: operatorSchema,
  };
  return withEnvironment(tree, environment, schemas);
}

/**
 * Reads the configuration of a service from a YAML or JSON file and the `FRAMEWORK_…` variables, which replace its values.
 *
 * @param setBy what names the file, such as a variable, for messages
 * @throws ConfigurationError `invalid-configuration` when the file cannot be read, is not YAML, or file or variables have mistakes; no
 * value is shown
 */
export async function readConfigFile(
  definition: Sections,
  { file, setBy, environment = {} }: ConfigSource,
): Promise<FrameworkConfig> {
  return parseFrameworkConfig(withVariables(definition, await readConfigTree(file, setBy), environment));
}

interface ConfigSource {
  readonly file: string;
  readonly setBy: string;
  readonly environment?: NodeJS.ProcessEnv;
}
