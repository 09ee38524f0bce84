import type { FaultProxy } from '@framework/testing';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import type { Broker, BrokerMessage } from '../src/index.js';
import { unlessAborted } from '../src/unless-aborted.js';

/** A message as a consumer of the broker sees it. */
export interface ReceivedMessage {
  readonly attributes: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A broker under test, reached through a connection that can be cut. */
export interface BrokerFixture {
  readonly broker: Broker;
  /** A topic that only this fixture uses; {@link received} reads what is published to it. */
  readonly topic: string;
  /** What makes the broker refuse a message, although its size is fine. */
  readonly unrouted: { readonly topic?: string; readonly attributes?: { readonly modelname: string } };
  /** More bytes than the broker takes in one message. */
  readonly tooLarge: number;
  /** What has been stored so far, without the repeats that the broker itself recognises, in order. */
  received(): Promise<readonly ReceivedMessage[]>;
  /** Cuts every connection, and refuses new ones until {@link restore}. */
  cut(): Promise<void>;
  /** Lets nothing through, in either direction, until {@link speak}. */
  silence(): void;
  speak(): void;
  /** Lets nothing through on connections that are open now, for ever; further ones are not affected. */
  deafen(): void;
  restore(): Promise<void>;
  close(): Promise<void>;
}

/** The faults of a fixture whose connections run through a proxy. */
export function faultsOf(
  proxy: FaultProxy,
): Pick<BrokerFixture, 'cut' | 'restore' | 'silence' | 'speak' | 'deafen'> {
  return {
    cut: () => proxy.refuse(),
    restore: () => proxy.accept(),
    silence: () => proxy.silence(),
    speak: () => proxy.resume(),
    deafen: () => {
      const { connectionCount: deafCount, judge } = proxy;
      proxy.judge = (message) => (message.connection <= deafCount ? 'drop' : judge(message));
    },
  };
}

let messageCount = 0;

/** The message of an event that made this version of a model; each call makes another event. */
export function messageFor(
  topic: string,
  modelId: string,
  version: number,
  body = '{"by":1}',
): BrokerMessage {
  const id = `00000000-0000-7000-8000-${String(++messageCount).padStart(12, '0')}`;
  return {
    id,
    key: `Counter\0${modelId}`,
    topic,
    eventType: 'CounterIncreasedEvent',
    attributes: {
      specversion: '1.0',
      id,
      subject: modelId,
      modelname: 'Counter',
      modelversion: `${version}`,
    },
    body: new TextEncoder().encode(body),
  };
}

const forever = new AbortController().signal;
const recoveryMs = 60_000;

/** Defines the tests of the promises that every broker keeps. */
export function describeBroker(
  name: string,
  server: URL | undefined,
  open: (server: URL) => Promise<BrokerFixture>,
): void {
  describe.skipIf(server === undefined)(`${name} as the broker of a relay`, () => {
    let fixture: BrokerFixture;
    beforeAll(async () => {
      if (server !== undefined) fixture = await open(server);
    });
    afterAll(() => fixture.close());

    /** Publishes messages, and returns what became of each. */
    async function publish(messages: readonly BrokerMessage[], signal = forever) {
      const outcomes = await fixture.broker.publish(messages, signal);
      return outcomes.map(({ kind }) => kind);
    }

    /** What has arrived of these messages, each once, in the order of first arrival. */
    async function arrivalsOf(messages: readonly BrokerMessage[]): Promise<readonly ReceivedMessage[]> {
      const ids = new Set(messages.map(({ id }) => id));
      const arrived = await fixture.received();
      return [...new Map(arrived.map((each) => [each.attributes['id'], each] as const)).values()].filter(
        ({ attributes }) => ids.has(attributes['id'] ?? ''),
      );
    }

    test('stores body and attributes as they are, whatever characters they contain', async () => {
      const body = JSON.stringify({ text: 'Größe "100 %"\n😀', none: null });
      const plain = messageFor(fixture.topic, 'a', 1, body);
      const message = { ...plain, attributes: { ...plain.attributes, subject: 'Konto 7/ä%20"x"\n' } };
      expect(await publish([message])).toEqual(['confirmed']);
      expect(await arrivalsOf([message])).toMatchObject([{ attributes: message.attributes, body }]);
    });

    test('stores the messages of each key in order, even when they are published again', async () => {
      const messages = Array.from({ length: 1_000 }, (_, index) =>
        messageFor(fixture.topic, `m${index % 20}`, Math.floor(index / 20)),
      );
      expect(new Set(await publish(messages))).toEqual(new Set(['confirmed']));
      await publish(messages.slice(500));
      const versions = Map.groupBy(await arrivalsOf(messages), ({ attributes }) => attributes['subject']);
      expect(versions.size).toBe(20);
      for (const arrived of versions.values())
        expect(arrived.map(({ attributes }) => Number(attributes['modelversion']))).toEqual(
          Array.from({ length: 50 }, (_, version) => version),
        );
    });

    test('refuses a message that is too large, holds back the later ones of its key, and takes the others', async () => {
      const large = JSON.stringify('x'.repeat(fixture.tooLarge));
      const messages = [
        messageFor(fixture.topic, 'c', 1),
        messageFor(fixture.topic, 'b', 1, large),
        messageFor(fixture.topic, 'b', 2),
        messageFor(fixture.topic, 'b', 3, large),
      ];
      const outcomes = await fixture.broker.publish(messages, forever);
      expect(outcomes.map(({ kind }) => kind)).toEqual(['confirmed', 'refused', 'held-back', 'held-back']);
      expect(outcomes[1]).toMatchObject({ reason: expect.stringMatching(/\w+/) as string });
      expect((await arrivalsOf(messages)).map(({ attributes }) => attributes['subject'])).toEqual(['c']);
    });

    test('lets a message wait that the broker has no place for, and takes the others', async () => {
      const { unrouted, topic } = fixture;
      const message = messageFor(unrouted.topic ?? topic, 'd', 1);
      const attributes = { ...message.attributes, ...unrouted.attributes };
      const placed = messageFor(topic, 'e', 1);
      expect(await publish([{ ...message, attributes }, placed])).toEqual(['later', 'confirmed']);
      expect((await arrivalsOf([message, placed])).map(({ attributes: { subject } }) => subject)).toEqual([
        'e',
      ]);
    });

    test('publishes nothing for a caller who no longer waits', async () => {
      const messages = [messageFor(fixture.topic, 'e', 1)];
      await expect(publish(messages, AbortSignal.abort(new Error('over')))).rejects.toThrow('over');
      expect(await arrivalsOf(messages)).toEqual([]);
    });

    test('lets a caller stop waiting while it is silent, and publishes in order afterwards', async () => {
      const messages = [1, 2, 3].map((version) => messageFor(fixture.topic, 'g', version));
      fixture.silence();
      const waiting = new AbortController();
      const published = unlessAborted(publish(messages, waiting.signal), waiting.signal);
      waiting.abort(new Error('too late'));
      await expect(published).rejects.toThrow('too late');
      fixture.speak();
      await expect.poll(() => publish(messages).catch(() => [])).toEqual(messages.map(() => 'confirmed'));
      const arrived = await arrivalsOf(messages);
      expect(arrived.map(({ attributes }) => attributes['modelversion'])).toEqual(['1', '2', '3']);
    });

    test(
      'publishes on another connection when nothing arrives any more on the one that is open',
      async () => {
        const messages = [1, 2].map((version) => messageFor(fixture.topic, 'h', version));
        await fixture.broker.ping();
        fixture.deafen();
        await expect
          .poll(() => publish(messages).catch(() => []), { timeout: recoveryMs })
          .toEqual(['confirmed', 'confirmed']);
        const arrived = await arrivalsOf(messages);
        expect(arrived.map(({ attributes }) => attributes['modelversion'])).toEqual(['1', '2']);
      },
      recoveryMs,
    );

    test('rejects while the broker cannot be reached, and publishes as soon as it is back', async () => {
      const messages = [messageFor(fixture.topic, 'f', 1), messageFor(fixture.topic, 'f', 2)];
      await fixture.cut();
      await expect(fixture.broker.ping()).rejects.toBeInstanceOf(Error);
      await expect(publish(messages)).rejects.toBeInstanceOf(Error);
      await fixture.restore();
      await expect.poll(() => publish(messages).catch(() => [])).toEqual(['confirmed', 'confirmed']);
      await fixture.broker.ping();
      const arrived = await arrivalsOf(messages);
      expect(arrived.map(({ attributes }) => attributes['modelversion'])).toEqual(['1', '2']);
    });
  });
}
