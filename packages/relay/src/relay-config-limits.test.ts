import { ConfigurationError } from '@framework/core';
import type { EventSource } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import type { Relay } from './index.js';
import { openRelays, relayKeys } from './relay-config.js';

const secret = `whsec_${Buffer.alloc(32).toString('base64')}`;
const timerMsMax = 2_147_483_647;

/** A section of each kind of broker that is accepted. */
const sections = {
  nats: { servers: ['nats://127.0.0.1:1'], stream: 's' },
  rabbitmq: { url: 'amqp://127.0.0.1:1', exchange: 'e' },
  kafka: { bootstrapServers: ['127.0.0.1:1'] },
  redis: { url: 'redis://127.0.0.1:1' },
  webhooks: { url: 'https://partner.example', secret },
} as const;
const kinds = Object.keys(sections) as (keyof typeof sections)[];

type Section = Readonly<Record<string, unknown>>;

async function open(...relay: readonly Section[]): Promise<readonly Relay[]> {
  return openRelays({ namespace: 'com.example', relay });
}

/** The paths of the faults of sections; none if they are accepted. */
async function pathsOf(...relay: readonly Section[]): Promise<readonly string[]> {
  try {
    await open(...relay);
    return [];
  } catch (error) {
    if (error instanceof ConfigurationError) return error.faults.map(({ path }) => path);
    throw error;
  }
}

/** How delivery calls a relay. */
function optionsOf(relay: Relay | undefined): { readonly startFrom?: unknown } | undefined {
  return (relay?.constructor as { readonly options?: object } | undefined)?.options;
}

describe('a section of relays', () => {
  test.each([
    ['a', 1, true],
    ['a', 99, true],
    ['a', 100, true],
    ['a', 101, false],
    ['ü', 100, true],
    ['a', 0, false],
  ])(
    'may have names and aliases of up to a hundred characters: %s, %i times: %s',
    async (character, count, may) => {
      const name = character.repeat(count);
      const { redis } = sections;
      expect(await pathsOf({ name, redis })).toEqual(may ? [] : ['framework.relay[0].name']);
      expect(await pathsOf({ name: 'r', aliases: [name], redis })).toEqual(
        may ? [] : ['framework.relay[0].aliases[0]'],
      );
    },
  );

  test('may have long names that differ only at the end, and no name twice', async () => {
    const long = 'x'.repeat(99);
    const { redis } = sections;
    expect(
      await pathsOf({ name: `${long}a`, redis }, { name: `${long}b`, aliases: [`${long}c`], redis }),
    ).toEqual([]);
    expect(await pathsOf({ name: long, redis }, { name: long, redis })).toEqual(['framework.relay[1].name']);
    expect(await pathsOf({ name: 'a', redis }, { name: 'b', aliases: ['a'], redis })).toEqual([
      'framework.relay[1].aliases',
    ]);
    expect(await pathsOf({ name: 'a', aliases: ['b'], redis }, { name: 'b', redis })).toEqual([
      'framework.relay[1].name',
    ]);
    expect(await pathsOf({ name: 'a', aliases: ['a'], redis })).toEqual(['framework.relay[0].aliases']);
    expect(await pathsOf({ name: 'a', aliases: ['b', 'b'], redis })).toEqual(['framework.relay[0].aliases']);
  });

  test.each([
    [0, false],
    [1, true],
    [1.5, false],
    [timerMsMax - 1, true],
    [timerMsMax, true],
    [timerMsMax + 1, false],
    [-1, false],
    ['1', false],
  ])('may have times of milliseconds that a timer can wait: %s: %s', async (timeoutMs, may) => {
    for (const kind of kinds) {
      const section = { name: 'r', [kind]: { ...sections[kind], timeoutMs } };
      expect(await pathsOf(section)).toEqual(may ? [] : [`framework.relay[0].${kind}.timeout-ms`]);
    }
    expect(await pathsOf({ name: 'r', timeoutMs, redis: sections.redis })).toEqual(
      may ? [] : ['framework.relay[0].timeout-ms'],
    );
  });

  test.each([
    ['rabbitmq', 'messageBytesMax'],
    ['kafka', 'messageBytesMax'],
    ['redis', 'messageBytesMax'],
    ['redis', 'maxLength'],
    ['webhooks', 'concurrency'],
  ] as const)('of %s may have at least 1 as %s', async (kind, key) => {
    const path = `framework.relay[0].${kind}.${key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    const faultsFor = (value: number) => pathsOf({ name: 'r', [kind]: { ...sections[kind], [key]: value } });
    expect(await faultsFor(1)).toEqual([]);
    for (const value of [0, -1, 1.5]) expect(await faultsFor(value)).toEqual([path]);
  });

  test.each([
    ['rabbitmq', 'amqp:', true],
    ['rabbitmq', 'amqps:', true],
    ['rabbitmq', 'redis:', false],
    ['redis', 'redis:', true],
    ['redis', 'rediss:', true],
    ['redis', 'amqp:', false],
    ['webhooks', 'http:', true],
    ['webhooks', 'https:', true],
    ['webhooks', 'ftp:', false],
    ['webhooks', '', false],
  ] as const)('of %s may have a URL with the protocol %j: %s', async (kind, protocol, may) => {
    const url = `${protocol}//127.0.0.1:1`;
    expect(await pathsOf({ name: 'r', [kind]: { ...sections[kind], url } })).toEqual(
      may ? [] : [`framework.relay[0].${kind}.url`],
    );
  });

  test.each([
    ['nats', 'stream'],
    ['rabbitmq', 'exchange'],
    ['kafka', 'topic'],
    ['redis', 'stream'],
    ['webhooks', 'secret'],
  ] as const)('of %s has no empty %s', async (kind, key) => {
    expect(await pathsOf({ name: 'r', [kind]: { ...sections[kind], [key]: '' } })).toEqual([
      `framework.relay[0].${kind}.${key}`,
    ]);
  });

  test('has exactly one broker, whichever two there are', async () => {
    for (const one of kinds)
      for (const other of kinds) {
        const relay = { name: 'r', [one]: sections[one], [other]: sections[other] };
        expect(await pathsOf(relay)).toEqual(one === other ? [] : ['framework.relay[0]']);
      }
  });

  test.each([
    ['nats', 100, 700_000],
    ['rabbitmq', 100, 700_000],
    ['webhooks', 100, 700_000],
    ['redis', undefined, 7_000_000],
    ['kafka', undefined, 7_000_000],
  ] as const)('of %s passes the time of a request on to its broker', async (kind, messagesMax, timeoutMs) => {
    const [relay] = await open({ name: 'r', [kind]: { ...sections[kind], timeoutMs: 7_000 } });
    expect(relay?.broker.limits).toEqual({ ...(messagesMax && { messagesMax }), timeoutMs });
  });

  test.each([
    ['beginning', 'beginning'],
    ['now', 'now'],
    ['2026-01-31T12:00:00Z', { time: new Date('2026-01-31T12:00:00Z') }],
    ['2026-01-31T12:00:00+02:00', { time: new Date('2026-01-31T10:00:00Z') }],
    ['0001-01-01T00:00:00Z', { time: new Date('0001-01-01T00:00:00Z') }],
    ['9999-12-31T23:59:59Z', { time: new Date('9999-12-31T23:59:59Z') }],
    ['0001-01-01T00:00:00+01:00', undefined],
    ['9999-12-31T23:59:59-01:00', undefined],
    ['2026-01-31', undefined],
    ['2026-01-31T12:00:00', undefined],
    ['2026-02-30T12:00:00Z', undefined],
  ])('starts from %s as %j', async (startFrom, start) => {
    const given = { name: 'r', startFrom, redis: sections.redis };
    const paths = await pathsOf(given);
    const [relay] = paths.length === 0 ? await open(given) : [];
    expect(paths).toEqual(start === undefined ? ['framework.relay[0].start-from'] : []);
    expect(optionsOf(relay)?.startFrom).toEqual(start);
  });

  test('has the limits of its broker, and its own longest time instead if it says one', async () => {
    const relays = await open(
      { name: 'a', nats: sections.nats },
      { name: 'b', timeoutMs: 77, aliases: ['former'], nats: sections.nats },
    );
    expect(relays.map(optionsOf)).toMatchObject([
      { batchMax: 100, timeoutMs: 503_000 },
      { batchMax: 100, timeoutMs: 3_077, aliases: ['former'] },
    ]);
    expect(relays.map(({ name, aliases }) => [name, aliases])).toEqual([
      ['a', []],
      ['b', ['former']],
    ]);
  });

  test('has the source of its own name alone, and none by a name that every object has', async () => {
    const source: EventSource = { states: [], open: () => Promise.reject(new Error('unused')) as never };
    const sources = { streaming: () => source };
    for (const name of ['constructor', 'toString', 'stream', 'streaming2'])
      await expect(
        openRelays(
          { namespace: 'com.example', relay: [{ name: 'r', source: name, redis: sections.redis }] },
          { sources },
        ),
      ).rejects.toMatchObject({ faults: [{ path: 'framework.relay[0].source' }] });
  });

  test('can be checked by its keys without opening anything', () => {
    expect(relayKeys.safeParse([{ name: 'r', redis: sections.redis }]).success).toBe(true);
    expect(relayKeys.safeParse([{ name: 'r', redis: { ...sections.redis, more: 1 } }]).success).toBe(false);
  });
});
