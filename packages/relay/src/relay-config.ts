import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import {
  type ConfigurationIssue,
  type EventSource,
  type Observer,
  isStorableText,
  kebabCasePath,
  unknownKeysBesidePassword,
} from '@framework/core/adapter';
import * as z from 'zod';

import type { Broker } from './broker.js';
import { type Relay, relay } from './relay.js';

const nameCharactersMax = 100;
const text = z.string().min(1, 'is empty');
/** Names of handlers are limited in the same way. */
const handlerName = text.refine((name) => isStorableText(name) && name.length <= nameCharactersMax, {
  error: `must have up to ${nameCharactersMax} characters, without NUL or half a surrogate pair`,
});
const milliseconds = z.int().min(1).max(2_147_483_647);

const natsSchema = z.strictObject({
  servers: z.array(text).min(1, 'is empty: name at least one server'),
  stream: text,
  createStream: z.boolean().default(false),
  username: text.optional(),
  password: text.optional(),
  token: text.optional(),
  timeoutMs: milliseconds.optional(),
});

const rabbitmqSchema = z.strictObject({
  url: urlOf('amqp:', 'amqps:'),
  exchange: text,
  declare: z.boolean().default(false),
  messageBytesMax: z.int().min(1).optional(),
  timeoutMs: milliseconds.optional(),
});

const tlsSchema = z
  .strictObject(
    { caFile: text.optional(), certFile: text.optional(), keyFile: text.optional() },
    { error: ({ code }) => (code === 'invalid_type' ? 'must be true, false, or a section' : undefined) },
  )
  .refine(({ certFile, keyFile }) => (certFile === undefined) === (keyFile === undefined), {
    error: 'must have both cert-file and key-file, or neither',
  });

const kafkaSchema = z.strictObject({
  bootstrapServers: z.array(text).min(1, 'is empty: name at least one server'),
  topic: text.optional(),
  createTopics: z.boolean().default(false),
  tls: z.preprocess(tlsSection, tlsSchema.optional()).optional(),
  sasl: z
    .strictObject({
      mechanism: z.enum(['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512']),
      username: text,
      password: text,
    })
    .optional(),
  messageBytesMax: z.int().min(1).optional(),
  timeoutMs: milliseconds.optional(),
});

const redisSchema = z.strictObject({
  url: urlOf('redis:', 'rediss:'),
  stream: text.optional(),
  maxLength: z.int().min(1).optional(),
  messageBytesMax: z.int().min(1).optional(),
  timeoutMs: milliseconds.optional(),
});

const webhooksSchema = z.strictObject({
  url: urlOf('http:', 'https:'),
  secret: text,
  timeoutMs: milliseconds.optional(),
  concurrency: z.int().min(1).optional(),
});

/** What a section says to those who receive its messages. */
interface Described extends Pick<RelayDescription, 'exchange'> {
  readonly protocol: NonNullable<RelayDescription['protocol']>;
  /** URLs, which may have users and passwords. */
  readonly servers: readonly string[];
  readonly topic?: string | undefined;
}

/** A kind of broker: its section, how a broker is made from it, and described. Its client is loaded only if a section needs it. */
function kind<S extends z.ZodType>(
  schema: S,
  clients: readonly string[],
  open: (section: z.output<S>, namespace: string) => Promise<Broker>,
  describe: (section: z.output<S>) => Described,
) {
  return {
    schema,
    clients,
    open: (section: unknown, namespace: string) => open(section as z.output<S>, namespace),
    describe: (section: unknown) => describe(section as z.output<S>),
  };
}

const kinds = {
  nats: kind(
    natsSchema,
    ['@nats-io/jetstream', '@nats-io/transport-node'],
    async ({ servers, stream, createStream, timeoutMs, ...given }, namespace) => {
      const { nats } = await import('./nats.js');
      const { username: user, password: pass, token } = given;
      const connection = defined({ user, pass, token });
      const subjects = createStream ? { createWith: [`${namespace}.>`] } : {};
      return nats({ servers, stream, ...subjects, ...defined({ timeoutMs }), connection });
    },
    ({ servers }) => ({ protocol: 'nats', servers: servers.map((each) => withScheme('nats', each)) }),
  ),
  rabbitmq: kind(
    rabbitmqSchema,
    ['amqplib'],
    async (section) => {
      const { rabbitmq } = await import('./rabbitmq.js');
      return rabbitmq(defined(section));
    },
    ({ url, exchange }) => ({ protocol: 'amqp', servers: [url], exchange }),
  ),
  kafka: kind(
    kafkaSchema,
    ['@platformatic/kafka'],
    async ({ createTopics, tls, sasl, ...section }) => {
      const { kafka } = await import('./kafka.js');
      const certificates = tls && (await certificatesOf(tls));
      const client = { autocreateTopics: createTopics, ...defined({ tls: certificates, sasl }) };
      return kafka({ ...defined(section), client });
    },
    ({ bootstrapServers, topic, tls }) => ({
      protocol: 'kafka',
      servers: bootstrapServers.map((each) => withScheme(tls ? 'kafka-secure' : 'kafka', each)),
      topic,
    }),
  ),
  redis: kind(
    redisSchema,
    ['redis'],
    async (section) => {
      const { redis } = await import('./redis.js');
      return redis(defined(section));
    },
    ({ url, stream }) => ({ protocol: 'redis', servers: [url], topic: stream }),
  ),
  webhooks: kind(
    webhooksSchema,
    ['standardwebhooks'],
    async (section) => {
      const { webhooks } = await import('./webhooks.js');
      return webhooks(defined(section));
    },
    // The server is the one that receives, and its path may be a secret.
    () => ({ protocol: 'http', servers: [] }),
  ),
};

type Kind = keyof typeof kinds;
const kindNames = Object.keys(kinds) as Kind[];

const startFault = { error: 'must be beginning, now, or a time such as 2026-01-31T12:00:00Z' };
const startSchema = z.union(
  [
    z.enum(['beginning', 'now']),
    z.iso
      .datetime({ offset: true })
      .transform((time) => ({ time: new Date(time) }))
      .refine(({ time }) => time.getUTCFullYear() >= 1 && time.getUTCFullYear() <= 9_999, startFault),
  ],
  startFault,
);

const relaySchema = z.strictObject({
  name: handlerName,
  aliases: z.array(handlerName).optional(),
  startFrom: startSchema.optional(),
  source: text.optional(),
  timeoutMs: milliseconds.optional(),
  ...(Object.fromEntries(kindNames.map((name) => [name, kinds[name].schema.optional()])) as {
    readonly [K in Kind]: z.ZodOptional<(typeof kinds)[K]['schema']>;
  }),
});

/** What {@link openRelays} reads, as a schema with its keys in camelCase, for programs that take values from elsewhere than a file. */
export const relayKeys: z.ZodType = z.array(relaySchema);

/** The sources of events that a configuration file may name, by their names there; each call creates one. */
export type RelaySources = Readonly<Record<string, () => EventSource | Promise<EventSource>>>;

/**
 * Creates the relays of a configuration file, the section `framework.relay`. They connect when delivery first publishes.
 *
 * @param options.sources the values of `source`, such as `'logical-replication'`; every relay can do without. Default: none
 * @param options.observer traces and measures the calls of their brokers. Default: nobody does
 * @throws ConfigurationError `invalid-configuration` with the path of every fault; values, which may contain passwords, are never
 * shown
 */
export async function openRelays(
  { namespace, relay: sections }: Pick<FrameworkConfig, 'namespace' | 'relay'>,
  { sources = {}, observer }: { readonly sources?: RelaySources; readonly observer?: Observer } = {},
): Promise<readonly Relay[]> {
  const faults: ConfigurationIssue[] = [];
  const relays: Relay[] = [];
  const names = new Set<string>();
  for (const [index, section] of sections.entries()) {
    const path = ['framework', 'relay', index];
    const { data, error } = relaySchema.safeParse(section, { reportInput: true });
    if (error !== undefined) {
      faults.push(...error.issues.flatMap((issue) => faultsOf(path, issue)));
      continue;
    }
    const { name, aliases = [], startFrom, timeoutMs, source: sourceName } = data;
    const createSource = Object.entries(sources).find(([each]) => each === sourceName)?.[1];
    if (sourceName !== undefined && createSource === undefined) {
      const known = Object.keys(sources).join(', ');
      const message =
        known === '' ? 'names a source, but this program has none' : `must be left out, or one of: ${known}`;
      faults.push({ path: kebabCasePath([...path, 'source']), message });
      continue;
    }
    const [broker, ...others] = kindNames.filter((each) => data[each] !== undefined);
    if (broker === undefined || others.length > 0) {
      const message = `must have exactly one of the sections ${kindNames.join(', ')}`;
      faults.push({ path: kebabCasePath(path), message });
      continue;
    }
    for (const [key, given] of [
      ['name', name],
      ...aliases.map((alias) => ['aliases', alias] as const),
    ] as const) {
      if (names.has(given))
        faults.push({ path: kebabCasePath([...path, key]), message: 'occurs twice: name each relay' });
      names.add(given);
    }
    let opening: string = broker;
    try {
      const opened = await kinds[broker].open(data[broker], namespace);
      opening = 'source';
      const source = await createSource?.();
      relays.push(
        relay({ name, broker: opened, aliases, ...defined({ startFrom, timeoutMs, source, observer }) }),
      );
    } catch (cause) {
      const clients = opening === broker ? kinds[broker].clients : [missingPackage(cause)];
      faults.push({ path: kebabCasePath([...path, opening]), message: openingFault(clients, cause) });
    }
  }
  if (faults.length > 0) throw new ConfigurationError(faults);
  return relays;
}

/** What `asyncApiDocument` says about the relays of a service. */
export interface RelayDescription {
  readonly protocol?: 'nats' | 'amqp' | 'kafka' | 'redis' | 'http';
  readonly exchange?: string;
  readonly topic?: () => string;
  readonly servers?: Readonly<
    Record<string, Readonly<{ host: string; protocol: string; pathname?: string }>>
  >;
}

/**
 * Describes the relays of a configuration file, the section `framework.relay`, for `asyncApiDocument`. Users, passwords, and the
 * receivers of webhooks are left out, and relays that {@link openRelays} refuses.
 *
 * @returns the servers by the names of their relays, and the protocol, exchange and topic if they are the same for all relays
 */
export function describeRelays({ relay: sections }: Pick<FrameworkConfig, 'relay'>): RelayDescription {
  const described = sections.flatMap((section) => {
    const { data } = relaySchema.safeParse(section);
    const broker = kindNames.find((each) => data?.[each] !== undefined);
    if (data === undefined || broker === undefined) return [];
    return [{ name: data.name, ...kinds[broker].describe(data[broker]) }];
  });
  const servers = described.flatMap(({ name, servers: urls }) =>
    urls.flatMap((url, index) => {
      const key = name.replaceAll(/[^\w-]/g, '_') + (index === 0 ? '' : `-${index + 1}`);
      return serverOf(url).map((server) => [key, server] as const);
    }),
  );
  const [first, ...others] = described.map(({ protocol, exchange, topic }) => ({
    protocol,
    exchange,
    topic,
  }));
  const isOne = others.every((other) => JSON.stringify(other) === JSON.stringify(first));
  const { protocol, exchange, topic } = (isOne ? first : undefined) ?? {};
  return {
    ...defined({ protocol, exchange, topic: topic === undefined ? undefined : () => topic }),
    ...(servers.length > 0 && { servers: Object.fromEntries(servers) }),
  };
}

/** A server without its user, password and parameters; none when a part of a password could be taken for the host. */
function serverOf(address: string) {
  const url = URL.parse(address);
  // An @ behind the host may be of a password that is not encoded.
  if (url === null || url.host === '' || (url.pathname + url.search + url.hash).includes('@')) return [];
  const { host, protocol, pathname } = url;
  return [{ host, protocol: protocol.slice(0, -1), ...(pathname.length > 1 && { pathname }) }];
}

function withScheme(scheme: string, server: string): string {
  return server.replace(/^([\w+]+:\/\/)?/, `${scheme}://`);
}

function openingFault(clients: readonly string[], cause: unknown): string {
  const { code, message } = cause as NodeJS.ErrnoException;
  if (code === 'ERR_MODULE_NOT_FOUND')
    return `needs a client that is not installed: npm install ${clients.join(' ')}`;
  return `is refused: ${message}`;
}

/** The package that Node has not found, which its error names first. */
function missingPackage(cause: unknown): string {
  return /'([^']+)'/.exec((cause as Error).message)?.[1] ?? '';
}

function faultsOf(relayPath: readonly PropertyKey[], issue: z.core.$ZodIssue): readonly ConfigurationIssue[] {
  const path = [...relayPath, ...issue.path];
  if (issue.code === 'unrecognized_keys') {
    return unknownKeysBesidePassword(path, issue.keys, keysAt(issue.path));
  }
  const message = issue.input === undefined ? 'is missing' : issue.message;
  return [{ path: kebabCasePath(path), message }];
}

/** The keys that a section of a relay may have. */
function keysAt(path: readonly PropertyKey[]): readonly string[] {
  let section: z.core.$ZodType | undefined = relaySchema;
  for (const key of path)
    section = section instanceof z.ZodObject ? withoutWrapping(section.shape[String(key)]) : undefined;
  return section instanceof z.ZodObject ? Object.keys(section.shape) : [];
}

function withoutWrapping(schema: z.core.$ZodType): z.core.$ZodType {
  if (schema instanceof z.ZodOptional) return withoutWrapping(schema.unwrap());
  return schema instanceof z.ZodPipe ? withoutWrapping(schema.out) : schema;
}

/** `true` is a section without keys, and `false` is none. */
function tlsSection(given: unknown): unknown {
  if (given === true) return {};
  return given === false ? undefined : given;
}

/**
 * Reads the files of a section `tls`. A connection would only later, and less clearly, say what is wrong with them.
 *
 * @throws Error when a file cannot be read or has something else
 */
async function certificatesOf({ caFile, certFile, keyFile }: z.output<typeof tlsSchema>) {
  const [ca, cert, key] = await Promise.all([
    contentOf('ca-file', caFile),
    contentOf('cert-file', certFile),
    contentOf('key-file', keyFile),
  ]);
  const certificates = defined({ ca, cert, key });
  try {
    // Without this, a connection would only say that it does not know the server.
    if (ca !== undefined) void new X509Certificate(ca);
    createSecureContext(certificates);
  } catch (cause) {
    throw new Error(`the files of tls cannot be used: ${String(cause)}`, { cause });
  }
  return certificates;
}

async function contentOf(key: string, file: string | undefined): Promise<string | undefined> {
  if (file === undefined) return undefined;
  try {
    return await readFile(file, 'utf8');
  } catch (cause) {
    const { code = '' } = cause as NodeJS.ErrnoException;
    throw new Error(`tls.${key} cannot be read: ${file} (${code})`, { cause });
  }
}

function urlOf(...protocols: readonly string[]) {
  return z.string().refine((url) => protocols.includes(URL.parse(url)?.protocol ?? ''), {
    error: `must be a URL that begins with ${protocols.map((protocol) => `${protocol}//`).join(' or ')}`,
  });
}

type Defined<T> = { readonly [K in keyof T as undefined extends T[K] ? never : K]: T[K] } & {
  readonly [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined>;
};

/** Leaves out what is `undefined`, so that the defaults apply. */
function defined<T extends object>(options: T): Defined<T> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Defined<T>;
}
