import { ConfigurationError, parseFrameworkConfig } from '@framework/core';
import type { EventSource } from '@framework/core/adapter';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';

import { describeRelays, openRelays } from './relay-config.js';

const sharding = {
  'default-shard': { group: 0, member: 0 },
  groups: [
    {
      group: 0,
      name: 'all',
      members: [
        {
          member: 0,
          name: 'all-1',
          configs: { 'primary-config': { 'jdbc-url': 'jdbc:postgresql://127.0.0.1/all' } },
        },
      ],
    },
  ],
};

/** The relays of a configuration file with this section. */
async function relaysOf(relay: unknown) {
  return openRelays(parseFrameworkConfig({ framework: { namespace: 'com.example', sharding, relay } }));
}

/** The faults of a section, by their paths. */
async function faultsOf(relay: unknown): Promise<Readonly<Record<string, string>>> {
  const error = await relaysOf(relay).catch((reason: unknown) => reason);
  if (!(error instanceof ConfigurationError)) throw new Error('It is accepted');
  return Object.fromEntries(error.faults.map(({ path, message }) => [path, message]));
}

const secret = `whsec_${Buffer.alloc(32).toString('base64')}`;

test('a file without relays has none', async () => {
  expect(await relaysOf(undefined)).toEqual([]);
});

test('a relay has the source that it names, if the program has it', async () => {
  const source: EventSource = { states: [], open: () => Promise.reject(new Error('unused')) as never };
  const framework = parseFrameworkConfig({
    framework: {
      namespace: 'com.example',
      sharding,
      relay: [
        { name: 'polls', redis: { url: 'redis://127.0.0.1:1' } },
        { name: 'streams', source: 'logical-replication', redis: { url: 'redis://127.0.0.1:1' } },
      ],
    },
  });
  let createdCount = 0;
  const create = (): EventSource => {
    createdCount++;
    return source;
  };
  expect(await openRelays(framework, { sources: { 'logical-replication': create } })).toHaveLength(2);
  expect(createdCount).toBe(1);
  const path = 'framework.relay[1].source';
  for (const [sources, message] of [
    [{}, 'this program has none'],
    [{ other: create }, 'one of: other'],
  ] as const) {
    const error = await openRelays(framework, { sources }).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ faults: [{ path, message: expect.stringContaining(message) as string }] });
  }
});

test.each([
  [
    Object.assign(new Error("Cannot find package 'a-client' imported from '/a/file.js'"), {
      code: 'ERR_MODULE_NOT_FOUND',
    }),
    'needs a client that is not installed: npm install a-client',
  ],
  [new Error('wrong'), 'is refused: wrong'],
])(
  'a relay whose source cannot be created is refused with the path of the source',
  async (cause, message) => {
    const relay = [{ name: 'streams', source: 'faulty', redis: { url: 'redis://127.0.0.1:1' } }];
    const framework = parseFrameworkConfig({ framework: { namespace: 'com.example', sharding, relay } });
    const opening = openRelays(framework, { sources: { faulty: () => Promise.reject(cause) } });
    await expect(opening).rejects.toMatchObject({ faults: [{ path: 'framework.relay[0].source', message }] });
  },
);

test('every kind of broker is opened by its section, in kebab-case or camelCase, without connecting', async () => {
  const relays = await relaysOf([
    {
      name: 'events-to-nats',
      'start-from': 'beginning',
      nats: { servers: ['nats://127.0.0.1:1'], stream: 'wallet-events', 'create-stream': true },
    },
    {
      name: 'events-to-rabbitmq',
      startFrom: 'now',
      rabbitmq: { url: 'amqp://127.0.0.1:1', exchange: 'e', declare: true },
    },
    {
      name: 'events-to-kafka',
      kafka: {
        'bootstrap-servers': ['127.0.0.1:1'],
        topic: 'wallet-events',
        tls: true,
        sasl: { mechanism: 'PLAIN', username: 'ann', password: 'secret' },
      },
    },
    {
      name: 'events-to-redis',
      'start-from': '2026-11-25T12:00:00Z',
      redis: { url: 'redis://127.0.0.1:1', stream: 's', 'max-length': 1_000_000 },
    },
    { name: 'events-to-partner', webhooks: { url: 'https://partner.example', secret } },
  ]);
  expect(relays.map(({ name }) => name)).toEqual([
    'events-to-nats',
    'events-to-rabbitmq',
    'events-to-kafka',
    'events-to-redis',
    'events-to-partner',
  ]);
  expect(new Set(relays.map(({ state }) => state.kind))).toEqual(new Set(['idle']));
  await Promise.all(relays.map(({ broker }) => broker.close()));
});

describe('a faulty section of relays', () => {
  const redis = { url: 'redis://127.0.0.1:6379' };
  const kafka = { 'bootstrap-servers': ['127.0.0.1:9092'] };
  const noCertificate = fileURLToPath(import.meta.url);

  test('is refused if it is not a list', async () => {
    await expect(relaysOf({ name: 'r', redis })).rejects.toThrow('framework.relay: is not a list');
  });

  test.each([
    ['no name', { redis }, 'framework.relay[0].name', 'is missing'],
    ['no broker', { name: 'r' }, 'framework.relay[0]', 'exactly one of the sections nats, rabbitmq, '],
    [
      'two brokers',
      { name: 'r', redis, rabbitmq: { url: 'amqp://a', exchange: 'e' } },
      'framework.relay[0]',
      'exactly one',
    ],
    [
      'an unknown start',
      { name: 'r', 'start-from': 'then', redis },
      'framework.relay[0].start-from',
      'must be beginning, now, or a time',
    ],
    [
      'a start before the year 1',
      { name: 'r', 'start-from': '0000-01-01T00:00:00Z', redis },
      'framework.relay[0].start-from',
      'must be beginning, now, or a time',
    ],
    [
      'no servers',
      { name: 'r', nats: { servers: [], stream: 's' } },
      'framework.relay[0].nats.servers',
      'at least one',
    ],
    [
      'another protocol',
      { name: 'r', redis: { url: 'http://a' } },
      'framework.relay[0].redis.url',
      'redis:// or rediss://',
    ],
    [
      'a length in words',
      { name: 'r', redis: { ...redis, 'max-length': 'many' } },
      'framework.relay[0].redis.max-length',
      'expected number',
    ],
    [
      'an unusable secret',
      { name: 'r', webhooks: { url: 'https://a', secret: 'whsec_%' } },
      'framework.relay[0].webhooks',
      'is refused: ',
    ],
    [
      'an unknown mechanism',
      { name: 'r', kafka: { ...kafka, sasl: { mechanism: 'GSSAPI', username: 'ann', password: 's3cret' } } },
      'framework.relay[0].kafka.sasl.mechanism',
      'SCRAM-SHA-512',
    ],
    [
      'no password',
      { name: 'r', kafka: { ...kafka, sasl: { mechanism: 'PLAIN', username: 'ann' } } },
      'framework.relay[0].kafka.sasl.password',
      'is missing',
    ],
    [
      'a certificate without its key',
      { name: 'r', kafka: { ...kafka, tls: { 'cert-file': 'a.pem' } } },
      'framework.relay[0].kafka.tls',
      'both cert-file and key-file',
    ],
    [
      'TLS in words',
      { name: 'r', kafka: { ...kafka, tls: 'yes' } },
      'framework.relay[0].kafka.tls',
      'must be true, false, or a section',
    ],
    [
      'a missing file',
      { name: 'r', kafka: { ...kafka, tls: { 'ca-file': '/missing/ca.pem' } } },
      'framework.relay[0].kafka',
      'tls.ca-file cannot be read: /missing/ca.pem (ENOENT)',
    ],
    [
      'a file that is no certificate',
      { name: 'r', kafka: { ...kafka, tls: { 'cert-file': noCertificate, 'key-file': noCertificate } } },
      'framework.relay[0].kafka',
      'the files of tls cannot be used',
    ],
    [
      'a file without authorities',
      { name: 'r', kafka: { ...kafka, tls: { 'ca-file': noCertificate } } },
      'framework.relay[0].kafka',
      'the files of tls cannot be used',
    ],
    [
      'certificates for a connection without TLS',
      { name: 'r', redis: { ...redis, tls: true } },
      'framework.relay[0].redis.tls',
      'needs a url that begins with rediss://',
    ],
    [
      'two ways to sign in',
      { name: 'r', nats: { servers: ['127.0.0.1'], stream: 's', token: 'a', 'nkey-seed': 'b' } },
      'framework.relay[0].nats',
      'only one of username, token, creds-file and nkey-seed',
    ],
    [
      'a missing file of credentials',
      { name: 'r', nats: { servers: ['127.0.0.1'], stream: 's', 'creds-file': '/missing/relay.creds' } },
      'framework.relay[0].nats',
      'creds-file cannot be read: /missing/relay.creds (ENOENT)',
    ],
    [
      'a password without a user',
      { name: 'r', nats: { servers: ['127.0.0.1'], stream: 's', password: 'p' } },
      'framework.relay[0].nats',
      'both username and password',
    ],
    [
      'a header that the client writes',
      { name: 'r', webhooks: { url: 'https://a.example', secret, headers: [{ name: 'Host', value: 'b' }] } },
      'framework.relay[0].webhooks.headers[0]',
      'the client writes it itself',
    ],
    [
      'a seed that is none',
      { name: 'r', nats: { servers: ['127.0.0.1'], stream: 's', 'nkey-seed': 'SUs3cret' } },
      'framework.relay[0].nats',
      'nkey-seed is not the seed of a key',
    ],
    [
      'a file without credentials',
      { name: 'r', nats: { servers: ['127.0.0.1'], stream: 's', 'creds-file': noCertificate } },
      'framework.relay[0].nats',
      'creds-file has no credentials',
    ],
    [
      'a subject that cannot be',
      { name: 'r', nats: { servers: ['127.0.0.1'], stream: 's', subject: '{model}.*' } },
      'framework.relay[0].nats',
      "The subject '{model}.*' must be parts with dots",
    ],
    [
      'a subject by which no stream can be created',
      {
        name: 'r',
        nats: { servers: ['127.0.0.1'], stream: 's', 'create-stream': true, subject: '{model}.{type}' },
      },
      'framework.relay[0].nats',
      'create-stream needs a subject that begins with {namespace}',
    ],
    [
      'an unknown placeholder',
      { name: 'r', rabbitmq: { url: 'amqp://127.0.0.1', exchange: 'e', 'routing-key': '{modle}' } },
      'framework.relay[0].rabbitmq',
      "The routing key '{modle}' has {modle}: it may have {namespace}",
    ],
    [
      'an impossible topic',
      { name: 'r', kafka: { ...kafka, topic: 'events/{model}' } },
      'framework.relay[0].kafka',
      'must be up to 249 letters',
    ],
    [
      'a header that HTTP does not allow',
      { name: 'r', webhooks: { url: 'https://a.example', secret, headers: [{ name: 'x y', value: '1' }] } },
      'framework.relay[0].webhooks.headers[0]',
      'is no header that a request may have',
    ],
    [
      'a proxy that is none',
      { name: 'r', webhooks: { url: 'https://a.example', secret, proxy: 'socks5://proxy' } },
      'framework.relay[0].webhooks.proxy',
      'must be a URL that begins with http:// or https://',
    ],
    [
      'a shard that does not exist',
      { name: 'r', redis, only: { shards: ['0/0', '0/1'] } },
      'framework.relay[0].only.shards[1]',
      'is none of the shards 0/0',
    ],
    [
      'a shard in other words',
      { name: 'r', redis, only: { shards: ['0,0'] } },
      'framework.relay[0].only.shards[0]',
      'must be a group and a member, such as 1/0',
    ],
    [
      'a filter that lets nothing through',
      { name: 'r', redis, only: { models: [] } },
      'framework.relay[0].only.models',
      '',
    ],
    ['a long name', { name: 'r'.repeat(101), redis }, 'framework.relay[0].name', 'up to 100 characters'],
    ['a name with NUL', { name: 'r\0', redis }, 'framework.relay[0].name', 'up to 100 characters'],
  ])('is refused with the path of %s', async (_what, relay, path, message) => {
    expect(await faultsOf([relay])).toEqual({ [path]: expect.stringContaining(message) as string });
  });

  test.each([
    ['webhooks', { url: 'https://ann:s3cret@partner.example', secret }, 'must not contain a user'],
    ['nats', { servers: ['nats://ann:s3cret@127.0.0.1'], stream: 's' }, 'must not contain a user'],
    ['kafka', { bootstrapServers: ['kafka://ann:s3cret@127.0.0.1:9092'] }, 'is a host and a port'],
  ])(
    'is refused if an address of %s has a user, and the password is not shown',
    async (kind, section, message) => {
      const faults = await faultsOf([{ name: 'r', [kind]: section }]);
      expect(faults).toEqual({ [`framework.relay[0].${kind}`]: expect.stringContaining(message) as string });
      expect(JSON.stringify(faults)).not.toContain('s3cret');
    },
  );

  test.each([
    'kafka.example:port',
    'kafka.example:65536',
    'kafka.example:0',
    'kafka.example:',
    'kafka-1.example:9092,kafka-2.example:9092',
    ' kafka.example',
    ':9092',
    '::1:9092',
    'kafka.example:9092?ssl=true',
  ])('is refused if %j is a server of Kafka', async (server) => {
    const section = { bootstrapServers: ['127.0.0.1:9092', server] };
    expect(await faultsOf([{ name: 'r', kafka: section }])).toEqual({
      'framework.relay[0].kafka': expect.stringContaining('is a host and a port') as string,
    });
  });

  test.each(['kafka', 'kafka_1.example:9092', '10.0.0.1:65535', '[::1]:9092', '[fe80::1%eth0]'])(
    'is not one if %s is a server of Kafka',
    async (server) => {
      const [relay] = await relaysOf([{ name: 'r', kafka: { bootstrapServers: [server] } }]);
      expect(relay?.state.kind).toBe('idle');
    },
  );

  test('does not show a private key that stands in place of its file', async () => {
    const key = '-----BEGIN PRIVATE KEY-----\nMIIs3cret\n-----END PRIVATE KEY-----';
    for (const relay of [
      { name: 'r', nats: { servers: ['127.0.0.1'], stream: 's', 'creds-file': key } },
      { name: 'r', kafka: { ...kafka, tls: { 'cert-file': key, 'key-file': key } } },
    ]) {
      const error = await relaysOf([relay]).catch((reason: unknown) => reason);
      expect(inspect(error, { depth: 10 })).toContain('must be the path of a file');
      expect(inspect(error, { depth: 10 })).not.toContain('MIIs3cret');
    }
  });

  test('is refused with every fault', async () => {
    const faults = await faultsOf([{ name: 'r', redis }, { name: 'r', redis }, { redis: {} }]);
    expect(Object.keys(faults)).toEqual([
      'framework.relay[1].name',
      'framework.relay[2].name',
      'framework.relay[2].redis.url',
    ]);
  });

  test('names an unknown key, but not one that could be a password', async () => {
    expect(await faultsOf([{ name: 'r', redis: { ...redis, 'max-lengt': 1 } }])).toEqual({
      'framework.relay[0].redis.max-lengt': 'is not a known key',
    });
    const faults = await faultsOf([{ name: 'r', redis: { ...redis, 'password:s3cret': null } }]);
    expect(JSON.stringify(faults)).not.toContain('s3cret');
    expect(faults).toEqual({
      'framework.relay[0].redis': expect.stringContaining('the known keys are url') as string,
    });
    const sasl = { mechanism: 'PLAIN', username: 'ann', password: 'secret', s3cret: null };
    expect(await faultsOf([{ name: 'r', kafka: { ...kafka, sasl } }])).toEqual({
      'framework.relay[0].kafka.sasl': expect.stringContaining(
        'the known keys are mechanism, username, password',
      ) as string,
    });
    expect(await faultsOf([{ name: 'r', kafka: { ...kafka, tls: { 'ca-fil': 'a.pem' } } }])).toEqual({
      'framework.relay[0].kafka.tls.ca-fil': 'is not a known key',
    });
  });
});

/** The description of the relays in this section of a configuration file. */
function describeFile(relay: unknown) {
  return describeRelays(parseFrameworkConfig({ framework: { namespace: 'com.example', sharding, relay } }));
}

const inNats = (name: string, ...servers: string[]) => ({ name, nats: { servers, stream: 's' } });

describe('the description of relays', () => {
  const secrets = 'ann:s3cret';

  test('has their servers without users, passwords and parameters, and not those of webhooks', () => {
    const relay = [
      {
        name: 'to nats',
        nats: {
          servers: [`nats://${secrets}@n1:4222`, 'n2:4222', 'tls://n3'],
          stream: 's',
          username: 'ann',
          password: 's3cret',
        },
      },
      { name: 'to-rabbitmq', rabbitmq: { url: `amqps://${secrets}@r1:5671/shop?key=s3cret`, exchange: 'e' } },
      { name: 'to-kafka', kafka: { 'bootstrap-servers': ['k1:9093'], tls: true } },
      { name: 'to-redis', redis: { url: `rediss://${secrets}@[::1]:6380/2` } },
      { name: 'to-partner', webhooks: { url: 'https://partner/hooks/s3cret', secret } },
    ];
    expect(describeFile(relay)).toEqual({
      servers: {
        to_nats: { host: 'n1:4222', protocol: 'nats' },
        'to_nats-2': { host: 'n2:4222', protocol: 'nats' },
        'to_nats-3': { host: 'n3', protocol: 'nats' },
        'to-rabbitmq': { host: 'r1:5671', protocol: 'amqps', pathname: '/shop' },
        'to-kafka': { host: 'k1:9093', protocol: 'kafka-secure' },
        'to-redis': { host: '[::1]:6380', protocol: 'rediss', pathname: '/2' },
      },
    });
  });

  test.each(['amqp://ann:7/s3cret@r1', 'amqp://ann:7#s3cret@r1', 'amqp://ann:7?s3cret@r1', 'amqp:///s3cret'])(
    'leaves out the server %s, because its password is not encoded or its host is missing',
    (url) => {
      expect(describeFile([{ name: 'r', rabbitmq: { url, exchange: 'e' } }])).toEqual({
        protocol: 'amqp',
        exchange: 'e',
      });
    },
  );

  test('has a protocol, exchange or address only if all relays have the same', () => {
    const inKafka = { name: 'a', kafka: { 'bootstrap-servers': ['k1:9092'], topic: 't' } };
    const one = describeFile([inKafka, { ...inKafka, name: 'b' }]);
    expect(one).toMatchObject({
      protocol: 'kafka',
      address: 't',
      servers: { a: { host: 'k1:9092' }, b: {} },
    });
    const other = { name: 'b', kafka: { 'bootstrap-servers': ['k1:9092'] } };
    expect(Object.keys(describeFile([inKafka, other]))).toEqual(['servers']);
    expect(describeFile([{ name: 'w', webhooks: { url: 'https://partner', secret } }])).toEqual({
      protocol: 'http',
    });
  });

  test('has each server under a name of its own, also of relays whose names differ little', () => {
    const relay = [inNats('a b', 'n1'), inNats('a_b', 'n2'), inNats('x', 'n3', 'n4'), inNats('x-2', 'n5')];
    const { servers = {} } = describeFile(relay);
    expect(Object.values(servers).map(({ host }) => host)).toEqual(['n1', 'n2', 'n3', 'n4', 'n5']);
  });

  test('has nothing of a relay that is refused, or of none', () => {
    expect(describeFile([])).toEqual({});
    expect(describeFile([{ name: 'r' }, { name: 'r', redis: { url: 'http://r1' } }])).toEqual({});
  });
});
