import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import * as z from 'zod';

import type { ServiceDescription } from '../service-definition.js';
import { namesOf } from '../service-names.js';
import { brokerProtocols, firstRelay, isBroker } from './first-relay.js';

const integer = (minimum: number, maximum: number) =>
  z
    .string()
    .refine((text) => /^\d{1,7}$/.test(text) && Number(text) >= minimum && Number(text) <= maximum, {
      error: `must be a whole number from ${minimum} to ${maximum}`,
    })
    .transform(Number);

const logLevels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;

/** What a process does: `http` answers requests, `worker` delivers events to handlers and relays, `relay` to relays only, `all` does it all. */
export type ServiceRole = 'all' | 'http' | 'worker' | 'relay';

const roles = ['all', 'http', 'worker', 'relay'] as const satisfies readonly ServiceRole[];

/** Those that begin with the name of the application, by what follows it. */
const ownSchema = z.object({
  ROLE: z.enum(roles, { error: `must be one of ${roles.join(', ')}` }).default('all'),
  CONFIG: z.string().optional(),
  DATA: z.string().optional(),
  RELAY: z
    .string()
    .refine(isBroker, { error: `must be the URL of a broker, ${brokerProtocols.join(', ')}` })
    .optional(),
  DOCS: z.enum(['on', 'off'], { error: 'must be on or off' }).default('on'),
});

const commonSchema = z.object({
  NODE_ENV: z.string().optional(),
  HOST: z.string().default('127.0.0.1'),
  PORT: integer(0, 65_535).default(8080),
  CONNECTIONS_MAX: integer(1, 1_000_000).optional(),
  LOG_LEVEL: z.enum(logLevels, { error: `must be one of ${logLevels.join(', ')}` }).optional(),
  SHUTDOWN_TIMEOUT_MS: integer(1, 600_000).default(10_000),
});

/** The settings of the process from its environment. */
export interface ServiceSettings {
  readonly role: ServiceRole;
  /** The file that configures the databases; without it, embedded ones are used. */
  readonly configFile: string | undefined;
  /** The folder of the embedded databases; `undefined` selects the one in the definition. */
  readonly dataFolder: string | undefined;
  /** The section `framework.relay` when the embedded databases are used: the relay to `…_RELAY`, if it is set. */
  readonly firstRelay: FrameworkConfig['relay'];
  readonly host: string;
  /** Whether the process is in operation, so that it may not answer everybody. */
  readonly isProduction: boolean;
  /** The port to listen on; 0 means any free one. */
  readonly port: number;
  /** Overrides `framework.http.limits.connections-max`. */
  readonly connectionsMax: number | undefined;
  /** Whether to serve `/docs`, a page for reading and trying the API. */
  readonly docs: boolean;
  readonly logLevel: (typeof logLevels)[number];
  /** How long stopping may take before the process exits anyway, in milliseconds. */
  readonly shutdownTimeoutMs: number;
}

/**
 * Reads the settings of the process. An empty variable counts as unset.
 *
 * @param isDemo whether it runs a demonstration, on databases of its own. Default false
 * @throws ConfigurationError `invalid-configuration` with every invalid variable
 */
export function readServiceSettings(
  definition: Pick<ServiceDescription, 'name'>,
  environment: NodeJS.ProcessEnv,
  isDemo = false,
): ServiceSettings {
  const { variables, stream } = namesOf(definition);
  const prefix = `${variables}_`;
  const set = Object.entries(environment).filter(([, value]) => value !== '');
  const mine = set.filter(([name]) => name.startsWith(prefix));
  const own = ownSchema.safeParse(
    Object.fromEntries(mine.map(([name, value]) => [name.slice(prefix.length), value])),
  );
  const common = commonSchema.safeParse(Object.fromEntries(set));
  if (own.error !== undefined || common.error !== undefined)
    throw new ConfigurationError([
      ...(own.error?.issues ?? []).map(({ path, message }) => ({
        path: `${prefix}${path.join('.')}`,
        message,
      })),
      ...(common.error?.issues ?? []).map(({ path, message }) => ({ path: path.join('.'), message })),
    ]);
  const { ROLE: role, CONFIG: configFile, DATA: dataFolder, RELAY: broker, DOCS: docs } = own.data;
  const { NODE_ENV, HOST, PORT, CONNECTIONS_MAX, LOG_LEVEL, SHUTDOWN_TIMEOUT_MS } = common.data;
  if (role !== 'all' && configFile === undefined) {
    const message = `${role} shares its databases with other processes, but embedded databases belong to one process: set ${prefix}CONFIG`;
    throw new ConfigurationError([{ path: `${prefix}ROLE`, message }]);
  }
  if (broker !== undefined && configFile !== undefined) {
    const message = `is for the embedded databases: configure framework.relay in the file of ${prefix}CONFIG`;
    throw new ConfigurationError([{ path: `${prefix}RELAY`, message }]);
  }
  if (configFile !== undefined && isDemo) {
    const message = 'names databases, but the demonstration has its own: leave it out';
    throw new ConfigurationError([{ path: `${prefix}CONFIG`, message }]);
  }
  return {
    role,
    configFile,
    dataFolder,
    firstRelay: broker === undefined ? [] : [firstRelay(broker, stream)],
    host: HOST,
    isProduction: NODE_ENV === 'production',
    port: PORT,
    connectionsMax: CONNECTIONS_MAX,
    docs: docs === 'on',
    // Without a configuration, a developer is trying the service and reads the terminal; with one, the service is in production. A
    // demonstration fails on purpose, and the console shows it.
    logLevel: LOG_LEVEL ?? (isDemo ? 'fatal' : configFile === undefined ? 'warn' : 'info'),
    shutdownTimeoutMs: SHUTDOWN_TIMEOUT_MS,
  };
}
