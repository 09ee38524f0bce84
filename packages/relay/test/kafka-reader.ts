import { type Admin, fetchV13 } from '@platformatic/kafka';

/** A record as Kafka has stored it. */
export interface StoredRecord {
  readonly partition: number;
  readonly key: string;
  readonly contentType: string | undefined;
  /** The attributes of the CloudEvent, by their names without `ce_`. */
  readonly attributes: Readonly<Record<string, string>>;
  readonly body: string;
}

const bytesMax = 10_000_000;
const withoutSession = -1;

/** Reads a topic from its beginning, and remembers itself how far it has read each partition. */
export class KafkaReader {
  readonly #topic: string;
  readonly #isRead: (partition: number) => boolean;
  /** The next offset to be read, by partition. */
  readonly #offsets = new Map<number, bigint>();

  /** @param isRead which partitions are read. Default: all */
  constructor(topic: string, isRead: (partition: number) => boolean = () => true) {
    this.#topic = topic;
    this.#isRead = isRead;
  }

  /**
   * Reads on, those of a partition in order.
   *
   * @param waitMs how long each server of the cluster may wait for a record if it has none
   * @returns whether the end of every partition is reached
   */
  async readOn(client: Admin, waitMs: number, onRecord: (record: StoredRecord) => void): Promise<boolean> {
    const { topics, brokers } = await client.metadata({ topics: [this.#topic] });
    const { id: topicId = '', partitions = [] } = topics.get(this.#topic) ?? {};
    const read = [...partitions.entries()].filter(([partition]) => this.#isRead(partition));
    const byLeader = Map.groupBy(read, ([, { leader }]) => leader);
    let isEnd = partitions.length > 0;
    for (const [leader, led] of byLeader) {
      const server = brokers.get(leader);
      if (server === undefined) throw new Error(`The topic ${this.#topic} has a partition without a leader`);
      const connection = await client.connections.get(server);
      const wanted = led.map(([partition]) => this.#wanted(partition));
      const { responses } = await fetchV13.api.async(
        connection,
        waitMs,
        waitMs > 0 ? 1 : 0,
        bytesMax,
        0,
        0,
        withoutSession,
        [{ topicId, partitions: wanted }],
        [],
        '',
      );
      for (const found of responses.flatMap((response) => response.partitions))
        if (!this.#pass(found, onRecord)) isEnd = false;
    }
    return isEnd;
  }

  #wanted(partition: number): fetchV13.FetchRequestPartition {
    return {
      partition,
      fetchOffset: this.#offsets.get(partition) ?? 0n,
      currentLeaderEpoch: -1,
      lastFetchedEpoch: -1,
      partitionMaxBytes: bytesMax,
    };
  }

  /** Whether the end of the partition is reached. */
  #pass(found: fetchV13.FetchResponsePartition, onRecord: (record: StoredRecord) => void): boolean {
    const { partitionIndex: partition, highWatermark, records } = found;
    let next = this.#offsets.get(partition) ?? 0n;
    for (const batch of records ?? []) {
      for (const record of batch.records) {
        const at = batch.firstOffset + BigInt(record.offsetDelta);
        // A batch is sent as a whole, even if it has been read in part.
        if (at < next) continue;
        onRecord(storedRecord(partition, record));
        next = at + 1n;
        this.#offsets.set(partition, next);
      }
    }
    return next >= highWatermark;
  }
}

interface FetchedRecord {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly (readonly [Buffer | null, Buffer | null])[];
}

function storedRecord(partition: number, { key, value, headers }: FetchedRecord): StoredRecord {
  const texts = headers.map(([name, text]) => [String(name), String(text)] as const);
  const attributes = texts
    .filter(([name]) => name.startsWith('ce_'))
    .map(([name, text]) => [name.slice('ce_'.length), text] as const);
  return {
    partition,
    key: String(key),
    contentType: new Map(texts).get('content-type'),
    attributes: Object.fromEntries(attributes),
    body: String(value),
  };
}
