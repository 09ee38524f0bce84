import { type ConfigurationError, type FrameworkConfig, parseFrameworkConfig } from '@framework/core';
import {
  type ConfiguredDatabase,
  type MemberConfig,
  configuredDatabases,
  primaryConfig,
} from '@framework/core/adapter';
import { databasePlace, parsePostgresAddress } from '@framework/drizzle-adapter/operation';
import { relayKeys } from '@framework/relay/config';
import * as z from 'zod';

import { readConfigTree } from './config/config-file.js';
import { type SectionSchemas, withEnvironment } from './config/environment-values.js';
import type { Terminal } from './terminal.js';

const text = z.string().optional();

/** What the command line reads of the sections that belong to the application. Other variables for these sections are left alone. */
const applicationSections: SectionSchemas = {
  http: z.object({
    tls: z.object({ certFile: text, keyFile: text }),
    limits: z.object({ requestTimeoutMs: z.number() }),
  }),
  security: z.object({ jwt: z.object({ issuer: text, audience: text, jwksUri: text, jwksFile: text }) }),
  operator: z.object({ host: text, port: z.number(), token: text, tokenFile: text, module: text }),
};
const ofApplication = /^FRAMEWORK_(HTTP|METRICS|SECURITY|OPERATOR)_/;
const readOfApplication =
  /^FRAMEWORK_(HTTP_TLS_(CERTFILE|KEYFILE)|HTTP_LIMITS_REQUESTTIMEOUTMS|SECURITY_JWT_(ISSUER|AUDIENCE|JWKSURI|JWKSFILE)|OPERATOR_(HOST|PORT|TOKEN|TOKENFILE|MODULE))(_FILE)?$/;

/**
 * Reads the configuration of the service: its file, and the `FRAMEWORK_…` variables. From then on, the terminal shows none of its
 * passwords.
 *
 * @throws ConfigurationError `invalid-configuration` with every fault
 */
export async function loadConfig(
  file: string,
  environment: NodeJS.ProcessEnv,
  terminal: Terminal,
): Promise<FrameworkConfig> {
  const tree = await readConfigTree(file, '--config');
  hidePasswords(tree, terminal);
  const known = Object.entries(environment).filter(
    ([name]) => !ofApplication.test(name) || readOfApplication.test(name),
  );
  const whole = withEnvironment(tree, Object.fromEntries(known), {
    relay: relayKeys,
    ...applicationSections,
  });
  hidePasswords(whole, terminal);
  const config = parseFrameworkConfig(whole);
  for (const { databases } of config.sharding.members)
    for (const { password } of databases.values())
      if (password !== undefined) terminal.hide(password.reveal());
  return config;
}

const secretKeys = /^(password|secret|token)$/i;

/** Tells the terminal all values whose key says that they are secret, whether or not the configuration is valid. */
function hidePasswords(tree: unknown, terminal: Terminal): void {
  if (typeof tree !== 'object' || tree === null) return;
  for (const [key, value] of Object.entries(tree) as [string, unknown][]) {
    if (secretKeys.test(key) && (typeof value === 'string' || typeof value === 'number'))
      terminal.hide(String(value));
    hidePasswords(value, terminal);
  }
}

/** Each database of a configuration once, with the members that it holds. */
export function databasesOf({ sharding }: FrameworkConfig): readonly ListedDatabase[] {
  return configuredDatabases(sharding, { parseAddress: parsePostgresAddress }).map((database) => {
    const members = sharding.members.filter(({ shard }) => database.shards.includes(shard));
    const names = members.map(({ shard, name }) => `${shard.group}/${shard.member} ${name}`).join(', ');
    const isPrimary = database.config.name === primaryConfig;
    const of = isPrimary ? '' : ` (${database.config.path.split('.').at(-1)})`;
    return {
      ...database,
      members,
      isPrimary,
      where: `${names}${of} on ${databasePlace(database.config.address)}`,
    };
  });
}

/** A database of the configuration. */
export interface ListedDatabase extends ConfiguredDatabase {
  readonly members: readonly MemberConfig[];
  /** Whether it holds the rows of its shards. */
  readonly isPrimary: boolean;
  /** Its shards and its place, for people. */
  readonly where: string;
}

/** What is wrong with a configuration, for messages. */
export function configurationText(error: ConfigurationError): string {
  return error.faults.map(({ path, message }) => `${path}: ${message}`).join('\n');
}
