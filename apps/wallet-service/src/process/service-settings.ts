import { readConfigTree } from '@framework/cli/config';
import { ConfigurationError, type FrameworkConfig, parseFrameworkConfig } from '@framework/core';
import { unescape } from 'node:querystring';
import * as z from 'zod';

import { withEnvironment } from './environment-config.js';

const integer = (minimum: number, maximum: number) =>
  z
    .string()
    .refine((text) => /^\d{1,7}$/.test(text) && Number(text) >= minimum && Number(text) <= maximum, {
      error: `must be a whole number from ${minimum} to ${maximum}`,
    })
    .transform(Number);

const logLevels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;

const roles = ['all', 'http', 'worker', 'relay'] as const;

/** What a process does: `http` answers requests, `worker` delivers events to handlers and relays, `relay` to relays only, `all` does it all. */
export type ServiceRole = (typeof roles)[number];

/** Makes the section of the relay to `WALLET_RELAY`, by the URL's protocol. The relay creates what it needs in the broker. */
const firstRelays: Readonly<Record<string, (url: string) => Readonly<Record<string, unknown>>>> = {
  'nats:': (url) => ({ nats: { ...natsServer(new URL(url)), stream: firstPlace, createStream: true } }),
  'amqp:': (url) => ({ rabbitmq: { url, exchange: firstPlace, declare: true } }),
  // A user stays in it: relays refuse one, which is better than to connect without.
  'kafka:': (url) => ({
    kafka: {
      bootstrapServers: [url.replaceAll(/^kafka:\/\/|\/$/gi, '')],
      topic: firstPlace,
      createTopics: true,
    },
  }),
  'redis:': (url) => ({ redis: { url, stream: firstPlace } }),
};
/** The name of the stream, exchange or topic that the relay to `WALLET_RELAY` creates. */
const firstPlace = 'wallet-events';
const firstProtocols = Object.keys(firstRelays).map((protocol) => `${protocol}//`);

const environmentSchema = z.object({
  WALLET_ROLE: z.enum(roles, { error: `must be one of ${roles.join(', ')}` }).default('all'),
  WALLET_CONFIG: z.string().optional(),
  WALLET_DATA: z.string().optional(),
  WALLET_RELAY: z
    .string()
    .refine((url) => firstRelays[URL.parse(url)?.protocol ?? ''] !== undefined, {
      error: `must be the URL of a broker, ${firstProtocols.join(', ')}`,
    })
    .optional(),
  NODE_ENV: z.string().optional(),
  HOST: z.string().default('127.0.0.1'),
  PORT: integer(0, 65_535).default(8080),
  CONNECTIONS_MAX: integer(1, 1_000_000).optional(),
  WALLET_DOCS: z.enum(['on', 'off'], { error: 'must be on or off' }).default('on'),
  LOG_LEVEL: z.enum(logLevels, { error: `must be one of ${logLevels.join(', ')}` }).optional(),
  SHUTDOWN_TIMEOUT_MS: integer(1, 600_000).default(10_000),
});

/** The settings of the process from its environment. */
export interface ServiceSettings {
  readonly role: ServiceRole;
  /** The file that configures the databases; without it, embedded ones are used. */
  readonly configFile: string | undefined;
  /** The folder of the embedded databases. `undefined` means `.data/postgres` in the repository. */
  readonly dataFolder: string | undefined;
  /** The section `framework.relay` when the embedded databases are used: the relay to `WALLET_RELAY`, if it is set. */
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
  /** How long stopping may take before the process exits anyway. */
  readonly shutdownTimeoutMs: number;
}

/**
 * Reads the settings of the process. An empty variable counts as unset.
 *
 * @throws ConfigurationError `invalid-configuration` with every invalid variable
 */
export function readServiceSettings(environment: NodeJS.ProcessEnv): ServiceSettings {
  const set = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''));
  const { data, error } = environmentSchema.safeParse(set);
  if (error !== undefined) {
    throw new ConfigurationError(
      error.issues.map(({ path, message }) => ({ path: path.join('.'), message })),
    );
  }
  if (data.WALLET_ROLE !== 'all' && data.WALLET_CONFIG === undefined) {
    const message = `${data.WALLET_ROLE} shares its databases with other processes, but embedded databases belong to one process: set WALLET_CONFIG`;
    throw new ConfigurationError([{ path: 'WALLET_ROLE', message }]);
  }
  if (data.WALLET_RELAY !== undefined && data.WALLET_CONFIG !== undefined) {
    const message = 'is for the embedded databases: configure framework.relay in the file of WALLET_CONFIG';
    throw new ConfigurationError([{ path: 'WALLET_RELAY', message }]);
  }
  return {
    role: data.WALLET_ROLE,
    configFile: data.WALLET_CONFIG,
    dataFolder: data.WALLET_DATA,
    firstRelay: data.WALLET_RELAY === undefined ? [] : [firstRelayTo(data.WALLET_RELAY)],
    host: data.HOST,
    isProduction: data.NODE_ENV === 'production',
    port: data.PORT,
    connectionsMax: data.CONNECTIONS_MAX,
    docs: data.WALLET_DOCS === 'on',
    // With embedded databases somebody is trying the service and reads the terminal. Otherwise it is in operation.
    logLevel: data.LOG_LEVEL ?? (data.WALLET_CONFIG === undefined ? 'warn' : 'info'),
    shutdownTimeoutMs: data.SHUTDOWN_TIMEOUT_MS,
  };
}

function firstRelayTo(url: string): FrameworkConfig['relay'][number] {
  const section = firstRelays[new URL(url).protocol]?.(url) ?? {};
  return { name: `events-to-${Object.keys(section).join()}`, startFrom: 'beginning', ...section };
}

/** A server of NATS, whose client takes users and passwords apart from URLs. */
function natsServer({ protocol, host, username, password }: URL): Readonly<Record<string, unknown>> {
  const servers = [`${protocol}//${host}`];
  if (username === '') return { servers };
  const user = unescape(username);
  // A user alone is a token.
  return password === ''
    ? { servers, token: user }
    : { servers, username: user, password: unescape(password) };
}

/**
 * Reads the configuration from a YAML or JSON file and the `FRAMEWORK_…` variables, which replace its values.
 *
 * @throws ConfigurationError `invalid-configuration` when the file cannot be read, is not YAML, or file or variables have mistakes; no
 * value is shown
 */
export async function readConfigFile(
  file: string,
  environment: NodeJS.ProcessEnv = {},
): Promise<FrameworkConfig> {
  return parseFrameworkConfig(withEnvironment(await readConfigTree(file, 'WALLET_CONFIG'), environment));
}
