import { isStorableText } from '@framework/core/adapter';
import * as z from 'zod';

import type { Broker } from './broker.js';
import { certificatesOf, defined, natsAuthenticator } from './relay-credentials.js';

const text = z.string().min(1, 'is empty');
const milliseconds = z.int().min(1).max(2_147_483_647);

const tlsSchema = z
  .strictObject(
    { caFile: text.optional(), certFile: text.optional(), keyFile: text.optional() },
    { error: ({ code }) => (code === 'invalid_type' ? 'must be true, false, or a section' : undefined) },
  )
  .refine(({ certFile, keyFile }) => (certFile === undefined) === (keyFile === undefined), {
    error: 'must have both cert-file and key-file, or neither',
  });
const tls = z.preprocess(tlsSection, tlsSchema.optional()).optional();

const natsSchema = z
  .strictObject({
    servers: z.array(text).min(1, 'is empty: name at least one server'),
    stream: text,
    createStream: z.boolean().default(false),
    subject: text.optional(),
    tls,
    username: text.optional(),
    password: text.optional(),
    token: text.optional(),
    credsFile: text.optional(),
    nkeySeed: text.optional(),
    timeoutMs: milliseconds.optional(),
  })
  .refine(
    ({ username, token, credsFile, nkeySeed }) =>
      [username, token, credsFile, nkeySeed].filter((each) => each !== undefined).length <= 1,
    { error: 'must have only one of username, token, creds-file and nkey-seed' },
  )
  .refine(({ username, password }) => (username === undefined) === (password === undefined), {
    error: 'must have both username and password, or neither',
  });

const rabbitmqSchema = z
  .strictObject({
    url: urlOf('amqp:', 'amqps:'),
    exchange: text,
    declare: z.boolean().default(false),
    routingKey: text.optional(),
    tls,
    messageBytesMax: z.int().min(1).optional(),
    timeoutMs: milliseconds.optional(),
  })
  .refine(usesTls, { path: ['tls'], error: 'needs a url that begins with amqps://' });

const kafkaSchema = z.strictObject({
  bootstrapServers: z.array(text).min(1, 'is empty: name at least one server'),
  topic: text.optional(),
  createTopics: z.boolean().default(false),
  tls,
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

const redisSchema = z
  .strictObject({
    url: urlOf('redis:', 'rediss:'),
    stream: text.optional(),
    tls,
    maxLength: z.int().min(1).optional(),
    messageBytesMax: z.int().min(1).optional(),
    timeoutMs: milliseconds.optional(),
  })
  .refine(usesTls, { path: ['tls'], error: 'needs a url that begins with rediss://' });

const headerSchema = z.strictObject({ name: text, value: z.string() }).refine(isHeader, {
  error:
    'is no header that a request may have: it has a character that is not allowed, or the client writes it itself',
});

const webhooksSchema = z
  .strictObject({
    url: urlOf('http:', 'https:'),
    secret: z.union([text, z.array(text).min(1)], { error: 'must be a secret, or a list of secrets' }),
    structured: z.boolean().optional(),
    // A list, because the keys of a section are written in kebab-case or camelCase.
    headers: z.array(headerSchema).default([]),
    tls,
    proxy: urlOf('http:', 'https:').optional(),
    timeoutMs: milliseconds.optional(),
    concurrency: z.int().min(1).optional(),
  })
  .refine(usesTls, { path: ['tls'], error: 'needs a url that begins with https://' });

/** What a section says to those who receive its messages. */
interface Described {
  readonly protocol: 'nats' | 'amqp' | 'kafka' | 'redis' | 'http';
  /** URLs, which may have users and passwords. */
  readonly servers: readonly string[];
  readonly exchange?: string;
  /** The template of the subjects, routing keys, topics or streams, if the section has one. */
  readonly address?: string | undefined;
}

/** A kind of broker: its section, what it says to receivers, and how a broker is made from it. Its client is loaded only if a section needs it. */
function kind<S extends z.ZodType>(
  schema: S,
  clients: readonly string[],
  describe: (section: z.output<S>) => Described,
  open: (section: z.output<S>, namespace: string) => Promise<Broker>,
) {
  return {
    schema,
    clients,
    describe: (section: unknown) => describe(section as z.output<S>),
    open: (section: unknown, namespace: string) => open(section as z.output<S>, namespace),
  };
}

/** The sections of the brokers, by their names in a file. */
export const kinds = {
  nats: kind(
    natsSchema,
    ['@nats-io/jetstream', '@nats-io/transport-node'],
    ({ servers, subject }) => ({
      protocol: 'nats',
      servers: servers.map((each) => withScheme('nats', each)),
      address: subject,
    }),
    async ({ servers, stream, createStream, subject, timeoutMs, tls: files, ...given }, namespace) => {
      const { nats } = await import('./nats.js');
      const { username: user, password: pass, token } = given;
      const authenticator = await natsAuthenticator(given);
      const certificates = files && (await certificatesOf(files));
      const connection = defined({ user, pass, token, authenticator, tls: certificates });
      const subjects = createStream ? { createWith: [subjectsOf(subject, namespace)] } : {};
      return nats({ servers, stream, ...subjects, ...defined({ subject, timeoutMs }), connection });
    },
  ),
  rabbitmq: kind(
    rabbitmqSchema,
    ['amqplib'],
    ({ url, exchange, routingKey }) => ({ protocol: 'amqp', servers: [url], exchange, address: routingKey }),
    async ({ tls: files, ...section }) => {
      const { rabbitmq } = await import('./rabbitmq.js');
      return rabbitmq({ ...defined(section), ...(files && { socket: await certificatesOf(files) }) });
    },
  ),
  kafka: kind(
    kafkaSchema,
    ['@platformatic/kafka'],
    ({ bootstrapServers, topic, tls: files }) => ({
      protocol: 'kafka',
      servers: bootstrapServers.map((each) => withScheme(files ? 'kafka-secure' : 'kafka', each)),
      address: topic,
    }),
    async ({ createTopics, tls: files, sasl, ...section }) => {
      const { kafka } = await import('./kafka.js');
      const certificates = files && (await certificatesOf(files));
      const client = { autocreateTopics: createTopics, ...defined({ tls: certificates, sasl }) };
      return kafka({ ...defined(section), client });
    },
  ),
  redis: kind(
    redisSchema,
    ['redis'],
    ({ url, stream }) => ({ protocol: 'redis', servers: [url], address: stream }),
    async ({ tls: files, ...section }) => {
      const { redis } = await import('./redis.js');
      const socket = files && ({ tls: true, ...(await certificatesOf(files)) } as const);
      return redis({ ...defined(section), ...(socket && { client: { socket } }) });
    },
  ),
  webhooks: kind(
    webhooksSchema,
    ['standardwebhooks', 'undici'],
    // The server is the one that receives, and its path may be a secret.
    () => ({ protocol: 'http', servers: [] }),
    async ({ tls: files, headers, ...section }) => {
      const { webhooks } = await import('./webhooks.js');
      return webhooks({
        ...defined(section),
        headers: Object.fromEntries(headers.map(({ name, value }) => [name, value])),
        ...(files && { tls: await certificatesOf(files) }),
      });
    },
  ),
};

const nameCharactersMax = 100;
/** Names of handlers are limited in the same way. */
const handlerName = text.refine((name) => isStorableText(name) && name.length <= nameCharactersMax, {
  error: `must have up to ${nameCharactersMax} characters, without NUL or half a surrogate pair`,
});

type Kind = keyof typeof kinds;
export const kindNames = Object.keys(kinds) as Kind[];

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

/** Which events a relay publishes. */
export const onlySchema = z.strictObject({
  models: z.array(text).min(1).optional(),
  events: z.array(text).min(1).optional(),
  shards: z
    .array(z.string().regex(/^\d+\/\d+$/, 'must be a group and a member, such as 1/0'))
    .min(1)
    .optional(),
});

/** A relay in a file. */
export const relaySchema = z.strictObject({
  name: handlerName,
  aliases: z.array(handlerName).optional(),
  startFrom: startSchema.optional(),
  source: text.optional(),
  timeoutMs: milliseconds.optional(),
  only: onlySchema.optional(),
  ...(Object.fromEntries(kindNames.map((name) => [name, kinds[name].schema.optional()])) as {
    readonly [K in Kind]: z.ZodOptional<(typeof kinds)[K]['schema']>;
  }),
});

function withScheme(scheme: string, server: string): string {
  return server.replace(/^([\w+]+:\/\/)?/, `${scheme}://`);
}

/**
 * The subjects of a stream that takes all messages, as far as they are known before there are any.
 *
 * @throws Error when that would be all subjects of the server
 */
function subjectsOf(subject: string | undefined, namespace: string): string {
  const [beginning = '', ...others] = (subject ?? '{namespace}.')
    .replaceAll('{namespace}', namespace)
    .split(/\{[^{}]*\}/);
  if (subject !== undefined && others.length === 0) return beginning;
  const fixed = beginning.slice(0, beginning.lastIndexOf('.') + 1);
  if (fixed === '')
    throw new Error(
      'create-stream needs a subject that begins with {namespace}, or with a fixed part and a dot',
    );
  return `${fixed}>`;
}

/** `true` is a section without keys, and `false` is none. */
function tlsSection(given: unknown): unknown {
  if (given === true) return {};
  return given === false ? undefined : given;
}

/** Certificates would have no effect if the URL did not ask for TLS. */
function usesTls({ tls: files, url }: { readonly tls?: unknown; readonly url: string }): boolean {
  return files === undefined || /^(?:amqps|rediss|https):/i.test(url);
}

function urlOf(...protocols: readonly string[]) {
  return z.string().refine((url) => protocols.includes(URL.parse(url)?.protocol ?? ''), {
    error: `must be a URL that begins with ${protocols.map((protocol) => `${protocol}//`).join(' or ')}`,
  });
}

/** Headers that the client writes itself, or refuses. */
const ownHeaders = /^(?:connection|content-length|expect|host|keep-alive|transfer-encoding|upgrade)$/i;

function isHeader({ name, value }: { readonly name: string; readonly value: string }): boolean {
  try {
    return new Headers([[name, value]]).has(name) && !ownHeaders.test(name);
  } catch {
    return false;
  }
}
