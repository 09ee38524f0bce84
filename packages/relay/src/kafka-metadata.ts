import { type Broker, ProtocolError, type metadataV11 } from '@platformatic/kafka';
import { setTimeout as delay } from 'node:timers/promises';

import { retryDelayMs } from './kafka-connection.js';
import { remember } from './target-health.js';

/** What a server answers about topics, and about the servers that lead their partitions. */
export type TopicsAnswer = Pick<metadataV11.MetadataResponse, 'brokers' | 'topics'>;

/** How many partitions a topic has, or why it takes no records: `refused` if it can never be written, `later` if it takes none now. */
export type PartitionCount = number | { readonly kind: 'refused' | 'later'; readonly reason: string };

/** The last answer about a topic. */
interface KnownTopic {
  /** Differs from the earlier one after the topic was deleted and created again; `undefined` if the server gives topics no ids. */
  readonly id: string | undefined;
  readonly count: PartitionCount;
  /** The number of the server that leads a partition, or -1. */
  readonly leaders: readonly number[];
  /** Until when the answer is used without another question. */
  readonly untilMs: number;
  /** When the first of the last answers came that there is no such topic. */
  readonly missingSinceMs?: number | undefined;
}

/** The metadata of topics, as all producers of a process know it. */
export class KafkaMetadata {
  readonly #autocreates: boolean;
  readonly #topics = new Map<string, KnownTopic>();
  #servers: ReadonlyMap<number, Broker> = new Map();
  /** The server that has answered last. */
  answered: Broker | undefined;

  /** @param autocreates whether a question about a missing topic creates it */
  constructor(autocreates: boolean) {
    this.#autocreates = autocreates;
  }

  /**
   * Asks for topics of which no recent answer is known, all in one request. An error of one topic, or a partition without a leader,
   * leaves the others as they are. A new topic may not have reached every server, so if none of these topics can be written, missing
   * ones are asked for again for half a second after they were found missing first.
   *
   * @param query asks a server
   * @param options.isForced whether to ask although there is a recent answer
   * @throws what `query` throws
   */
  async describe(
    topics: readonly string[],
    query: (topics: readonly string[]) => Promise<TopicsAnswer>,
    { isForced = false }: { readonly isForced?: boolean } = {},
  ): Promise<void> {
    // A server closes the connection when it gets a much longer name.
    const named = topics.filter(({ length }) => length <= topicCharactersMax);
    let due = isForced ? named : named.filter((topic) => !this.#isFresh(topic));
    while (due.length > 0) {
      this.#note(due, await query(due));
      if (named.some((topic) => typeof this.countOf(topic) === 'number')) return;
      due = named.filter((topic) => this.#isNewlyMissing(topic));
      if (due.length > 0) await delay(retryDelayMs);
    }
  }

  /** @returns `undefined` if there was no answer about the topic so far */
  countOf(topic: string): PartitionCount | undefined {
    if (topic.length <= topicCharactersMax) return this.#topics.get(topic)?.count;
    const reason = `the name of the topic has ${topic.length} characters, more than ${topicCharactersMax}`;
    return { kind: 'refused', reason };
  }

  /** Whether a topic takes records, or may do so at another time, as far as is known. */
  mayExist(topic: string): boolean {
    const count = this.countOf(topic);
    return typeof count !== 'object' || count.kind !== 'refused';
  }

  /** The server that leads a partition; `undefined` if there is none, as far as is known. */
  leaderOf(topic: string, partition: number): Broker | undefined {
    return this.#servers.get(this.#topics.get(topic)?.leaders[partition] ?? -1);
  }

  /** Whether all these topics in an answer are certainly those that were known before: none was deleted and created again. */
  areSame(topics: readonly string[], answer: TopicsAnswer): boolean {
    const ids = new Map(answer.topics.map(({ name, topicId }) => [name, topicId]));
    return topics.every((topic) => {
      const id = this.#topics.get(topic)?.id;
      return id !== undefined && id === ids.get(topic);
    });
  }

  #isFresh(topic: string): boolean {
    return performance.now() < (this.#topics.get(topic)?.untilMs ?? 0);
  }

  #isNewlyMissing(topic: string): boolean {
    const { missingSinceMs = -Infinity } = this.#topics.get(topic) ?? {};
    return performance.now() < missingSinceMs + topicPatienceMs;
  }

  #note(asked: readonly string[], { topics, brokers }: TopicsAnswer): void {
    const nowMs = performance.now();
    this.#servers = new Map(brokers.map((each) => [each.nodeId, each]));
    const described = new Map(topics.map((topic) => [topic.name, topic]));
    for (const topic of asked) {
      const found = described.get(topic);
      const before = this.#topics.get(topic);
      remember(this.#topics, topic, this.#known(topic, found, before?.missingSinceMs ?? nowMs));
    }
  }

  #known(
    topic: string,
    found: TopicsAnswer['topics'][number] | undefined,
    missingSinceMs: number,
  ): KnownTopic {
    const nowMs = performance.now();
    const nothing = { id: undefined, leaders: [], untilMs: nowMs };
    const { errorCode, isInternal, topicId, partitions } = found ?? missing;
    if (errorCode === unknownTopic) {
      const what = this.#autocreates ? 'has not been created so far' : 'does not exist';
      const count = { kind: 'later', reason: `the topic ${topic} ${what}` } as const;
      return { ...nothing, count, untilMs: nowMs + missingMs, missingSinceMs };
    }
    if (errorCode !== 0) {
      const reason = `the topic ${topic}: ${new ProtocolError(errorCode).message}`;
      return { ...nothing, count: { kind: errorCode === invalidTopic ? 'refused' : 'later', reason } };
    }
    if (isInternal)
      return { ...nothing, count: { kind: 'refused', reason: `the topic ${topic} is Kafka's own` } };
    const led = new Map(partitions.map(({ partitionIndex, leaderId }) => [partitionIndex, leaderId]));
    const leaders = partitions.map((_partition, index) => led.get(index) ?? -1);
    return {
      id: topicId === noId ? undefined : topicId,
      count: leaders.length,
      leaders,
      untilMs: leaders.includes(-1) ? nowMs : nowMs + describedMs,
    };
  }
}

/** What servers older than 2.8 give every topic, also while a cluster is upgraded. */
const noId = '00000000-0000-0000-0000-000000000000';
const topicCharactersMax = 249;
/** For how long {@link KafkaMetadata.describe} asks again, in addition to the time of the answers. */
export const topicPatienceMs = 500;
/** How long the answer about a topic is used. */
const describedMs = 5_000;
/** How long a topic is taken for missing without another question. */
const missingMs = 1_000;
const unknownTopic = 3;
const invalidTopic = 17;
const missing = { errorCode: unknownTopic, isInternal: false, topicId: noId, partitions: [] };
