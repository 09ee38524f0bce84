import {
  type Broker,
  type Producer,
  ProtocolError,
  ResponseError,
  UserError,
  type metadataV12,
} from '@platformatic/kafka';
import { setTimeout as delay } from 'node:timers/promises';

/** What is known of a topic. */
interface DescribedTopic {
  /** Differs from the earlier one after the topic was deleted and created again; `undefined` if the server gives topics no ids. */
  readonly id?: string | undefined;
  readonly partitionsCount: number;
  readonly partitions: readonly { readonly leader: number }[];
}

/** What is known of topics, and of the servers that lead their partitions, by their numbers. */
interface DescribedTopics {
  /** An error for a topic of which the server says nothing else; none for topics of Kafka itself. */
  readonly topics: ReadonlyMap<string, DescribedTopic | ProtocolError>;
  readonly brokers: ReadonlyMap<number, Broker>;
}

/** How many partitions a topic has, or why it takes no records: `refused` if it can never be written, `later` if it takes none now. */
export type PartitionCount = number | { readonly kind: 'refused' | 'later'; readonly reason: string };

/** The metadata of topics, as one producer knows it. */
export class KafkaMetadata {
  readonly #client: Producer;
  readonly #autocreates: boolean;
  readonly #connectionCount: () => number;
  readonly #ids = new Map<string, string>();
  /** How many connections there had been when a topic was asked for last. */
  readonly #askedAt = new Map<string, number>();

  /**
   * @param autocreates whether asking for a missing topic creates it
   * @param connectionCount how many connections the producer has opened: a new one may lead to another cluster
   */
  constructor(client: Producer, autocreates: boolean, connectionCount: () => number) {
    this.#client = client;
    this.#autocreates = autocreates;
    this.#connectionCount = connectionCount;
  }

  /**
   * Describes topics. An error of one topic, or a partition without a leader, leaves the others as they are.
   *
   * @param options.forceUpdate whether to ask a server although the client's cache, which lasts five seconds, has the answer. Default: if the
   * producer has opened a connection since the last question
   * @throws Error when a topic was deleted and created again: the producer's sequence numbers belong to the old one
   * @throws what the client throws when there is no answer, or a topic is unknown
   */
  async describe(
    topics: readonly string[],
    { forceUpdate = !this.#areKnown(topics) }: { readonly forceUpdate?: boolean } = {},
  ): Promise<DescribedTopics> {
    const connectionCount = this.#connectionCount();
    const described = await this.#ask(topics, forceUpdate);
    // An error has only the topics that the client's cache lacked, and another error may have cleared that cache meanwhile.
    if (!forceUpdate && topics.some((topic) => described.topics.get(topic) === undefined))
      return this.describe(topics, { forceUpdate: true });
    for (const [topic, found] of described.topics) this.#assertSame(topic, found);
    if (forceUpdate) for (const topic of topics) this.#askedAt.set(topic, connectionCount);
    return described;
  }

  /**
   * Checks, after a new connection, that no topic was deleted and created again.
   *
   * @throws as {@link describe}, and the error of a topic of which nothing else is known
   */
  async verify(topics: readonly string[]): Promise<void> {
    if (this.#areKnown(topics)) return;
    const described = await this.describe(topics, { forceUpdate: true });
    for (const found of described.topics.values()) if (found instanceof Error) throw found;
  }

  #areKnown(topics: readonly string[]): boolean {
    return topics.every((topic) => this.#askedAt.get(topic) === this.#connectionCount());
  }

  async #ask(topics: readonly string[], forceUpdate: boolean): Promise<DescribedTopics> {
    let failure: unknown;
    // The client would also retry questions that a server has answered. Only a lost connection deserves a retry.
    for (const retries of [0, lostConnectionRetries])
      try {
        return await this.#client.metadata({ topics: [...topics], retries, forceUpdate });
      } catch (error) {
        const response = descriptionIn(error);
        if (response !== undefined) return describedBy(response);
        failure = error;
        if (isUnknownTopic(error)) break;
      }
    throw failure;
  }

  /**
   * Counts the partitions of topics. A new topic may not have reached every server, so missing ones are asked for again for half a second.
   *
   * @param knownCountOf how many partitions another producer has counted: one whose cache has fewer asks again
   * @throws what the client throws when nothing is known
   */
  async partitionCounts(
    topics: readonly string[],
    knownCountOf: (topic: string) => number,
  ): Promise<ReadonlyMap<string, PartitionCount>> {
    const counts = new Map<string, PartitionCount>();
    let asked = topics.filter((topic) => {
      // A server closes the connection when it gets a much longer name.
      if (topic.length <= topicCharactersMax) return true;
      const reason = `the name of the topic has ${topic.length} characters, more than ${topicCharactersMax}`;
      counts.set(topic, { kind: 'refused', reason });
      return false;
    });
    const endMs = performance.now() + topicPatienceMs;
    while (asked.length > 0) {
      const found = await this.#countsOf(asked, knownCountOf);
      for (const [topic, count] of found) counts.set(topic, count ?? this.#missing(topic));
      asked = asked.filter((topic) => found.get(topic) === undefined);
      // To find many missing topics takes long, and the others must not wait for a second search.
      if (asked.length === 0 || performance.now() >= endMs) break;
      await delay(retryDelayMs);
    }
    return counts;
  }

  /** @returns `undefined` for a topic that does not exist now */
  async #countsOf(
    topics: readonly string[],
    knownCountOf: (topic: string) => number,
  ): Promise<ReadonlyMap<string, PartitionCount | undefined>> {
    try {
      const { topics: found } = await this.describe(topics);
      const isOld = topics.some((topic) => {
        const count = countIn(found, topic);
        return typeof count === 'number' && count < knownCountOf(topic);
      });
      const { topics: newest } = isOld
        ? await this.describe(topics, { forceUpdate: true })
        : { topics: found };
      return new Map(topics.map((topic) => [topic, countIn(newest, topic)]));
    } catch (error) {
      if (!isUnknownTopic(error)) throw error;
      if (topics.length === 1) return new Map(topics.map((topic) => [topic, undefined]));
      // The client names one unknown topic, and drops the rest of the answer.
      const middle = Math.ceil(topics.length / 2);
      const halves = [topics.slice(0, middle), topics.slice(middle)];
      const counts = await Promise.all(halves.map((half) => this.#countsOf(half, knownCountOf)));
      return new Map(counts.flatMap((ofHalf) => [...ofHalf]));
    }
  }

  #missing(topic: string): PartitionCount {
    const what = this.#autocreates ? 'has not been created so far' : 'does not exist';
    return { kind: 'later', reason: `the topic ${topic} ${what}` };
  }

  #assertSame(topic: string, found: DescribedTopic | ProtocolError | undefined): void {
    if (found === undefined || found instanceof Error || found.id === undefined || found.id === noId) return;
    const known = this.#ids.get(topic) ?? found.id;
    this.#ids.set(topic, known);
    if (known !== found.id) throw new Error(`The topic ${topic} was deleted and created again`);
  }
}

/** What servers older than 2.8 give every topic, also while a cluster is upgraded. */
const noId = '00000000-0000-0000-0000-000000000000';
const topicCharactersMax = 249;
const lostConnectionRetries = 2;
/** How long to wait before a question is repeated. */
export const retryDelayMs = 100;
/** For how long {@link KafkaMetadata.partitionCounts} asks again, in addition to the time of the answers. */
export const topicPatienceMs = 500;
const unknownTopic = 3;
const invalidTopic = 17;

/** @returns `undefined` for a topic that does not exist now */
function countIn(topics: DescribedTopics['topics'], topic: string): PartitionCount | undefined {
  const found = topics.get(topic);
  if (found === undefined) return { kind: 'refused', reason: `the topic ${topic} is Kafka's own` };
  if (!(found instanceof Error)) return found.partitionsCount;
  const { apiCode } = found as { readonly apiCode?: number };
  if (apiCode === unknownTopic) return undefined;
  return {
    kind: apiCode === invalidTopic ? 'refused' : 'later',
    reason: `the topic ${topic}: ${found.message}`,
  };
}

function isUnknownTopic(error: unknown): boolean {
  return error instanceof UserError && error.message.startsWith('Unknown topic ');
}

/** The answer of a server about topics in an error of the client, which its declarations leave out. */
function descriptionIn(error: unknown): metadataV12.MetadataResponse | undefined {
  const { response } = error as { readonly response?: metadataV12.MetadataResponse };
  if (error instanceof ResponseError && response?.topics !== undefined) return response;
  if (error instanceof AggregateError) return error.errors.map(descriptionIn).findLast(Boolean);
  return error instanceof Error && error.cause !== undefined ? descriptionIn(error.cause) : undefined;
}

function describedBy({ topics, brokers }: metadataV12.MetadataResponse): DescribedTopics {
  const known = new Map<string, DescribedTopic | ProtocolError>();
  for (const { name, topicId: id, errorCode, isInternal, partitions } of topics) {
    if (errorCode !== 0) known.set(name ?? '', new ProtocolError(errorCode));
    if (errorCode !== 0 || isInternal) continue;
    const leaders = new Map(partitions.map(({ partitionIndex, leaderId }) => [partitionIndex, leaderId]));
    const numbered = partitions.map((_partition, index) => ({ leader: leaders.get(index) ?? -1 }));
    known.set(name ?? '', { id, partitionsCount: partitions.length, partitions: numbered });
  }
  return { topics: known, brokers: new Map(brokers.map((each) => [each.nodeId, each])) };
}
