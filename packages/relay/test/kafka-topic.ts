import {
  AclOperations,
  AclPermissionTypes,
  Admin,
  type Broker,
  ResourcePatternTypes,
  ResourceTypes,
  fetchV13,
} from '@platformatic/kafka';
import type { FaultProxy } from '@framework/testing';
import { vi } from 'vitest';

import type { ReceivedMessage } from './broker-suite.js';

/** A record as Kafka has stored it. */
export interface StoredRecord extends ReceivedMessage {
  readonly partition: number;
  readonly key: string;
  readonly contentType: string | undefined;
}

const readyMaxMs = 30_000;
const waitMs = 1_000;
const bytesMax = 10_000_000;
const withoutSession = -1;

/** A topic of a test's own, read from its beginning. */
export class KafkaTopic {
  readonly name: string;
  readonly #admin: Admin;
  readonly #read: StoredRecord[] = [];
  /** The next offset to be read, by partition. */
  readonly #offsets = new Map<number, bigint>();

  private constructor(name: string, admin: Admin) {
    this.name = name;
    this.#admin = admin;
  }

  /** Creates it with a few partitions, which take batches of this many bytes. */
  static async create(name: string, server: URL, messageBytesMax: number): Promise<KafkaTopic> {
    const admin = new Admin({
      clientId: 'test',
      bootstrapBrokers: [server.host],
      retries: 10,
      retryDelay: 100,
    });
    const configs = [{ name: 'max.message.bytes', value: String(messageBytesMax) }];
    await admin.createTopics({ topics: [name], partitions: 3, replicas: 1, configs });
    const topic = new KafkaTopic(name, admin);
    // A partition has no leader at first.
    await vi.waitUntil(() => topic.records().catch(() => undefined), { timeout: readyMaxMs, interval: 50 });
    return topic;
  }

  /** The address by which a server of the cluster makes itself known. */
  async advertised(): Promise<Broker> {
    const { brokers } = await this.#admin.metadata({ topics: [] });
    const [first] = brokers.values();
    if (first === undefined) throw new Error('The cluster has no server');
    return first;
  }

  /** Everything that the topic has, those of a partition in order. */
  async records(): Promise<readonly StoredRecord[]> {
    const { topics, brokers } = await this.#admin.metadata({ topics: [this.name] });
    const { id = '', partitions = [] } = topics.get(this.name) ?? {};
    for (const [partition, { leader }] of partitions.entries()) {
      const connection = await this.#admin.connections.get(brokers.get(leader) ?? (await this.advertised()));
      while (!(await this.#readFurther(connection, id, partition)));
    }
    return [...this.#read];
  }

  /** Lets nobody write to it; the server must have an authorizer. */
  async forbidWriting(): Promise<void> {
    const entry = {
      resourceType: ResourceTypes.TOPIC,
      resourceName: this.name,
      resourcePatternType: ResourcePatternTypes.LITERAL,
      principal: 'User:*',
      host: '*',
    };
    await this.#admin.createAcls({
      creations: [
        { ...entry, operation: AclOperations.ALL, permissionType: AclPermissionTypes.ALLOW },
        { ...entry, operation: AclOperations.WRITE, permissionType: AclPermissionTypes.DENY },
      ],
    });
  }

  /** Removes the topic. */
  async close(): Promise<void> {
    await this.#admin.deleteTopics({ topics: [this.name] });
    await this.#admin.close();
  }

  /** Whether the partition has been read to its end. */
  async #readFurther(
    connection: Awaited<ReturnType<Admin['connections']['get']>>,
    topicId: string,
    partition: number,
  ): Promise<boolean> {
    const offset = this.#offsets.get(partition) ?? 0n;
    const wanted = {
      partition,
      fetchOffset: offset,
      currentLeaderEpoch: -1,
      lastFetchedEpoch: -1,
      partitionMaxBytes: bytesMax,
    };
    const { responses } = await fetchV13.api.async(
      connection,
      waitMs,
      0,
      bytesMax,
      0,
      0,
      withoutSession,
      [{ topicId, partitions: [wanted] }],
      [],
      '',
    );
    const [found] = responses[0]?.partitions ?? [];
    for (const batch of found?.records ?? []) {
      for (const record of batch.records) {
        const at = batch.firstOffset + BigInt(record.offsetDelta);
        if (at < offset) continue;
        this.#read.push(storedRecord(partition, record));
        this.#offsets.set(partition, at + 1n);
      }
    }
    return (this.#offsets.get(partition) ?? 0n) >= (found?.highWatermark ?? 0n);
  }
}

/**
 * Puts a proxy between a cluster and its clients. Clients leave the proxy for the address that a server makes known, so that the
 * proxy replaces the port in it by its own.
 */
export function advertise(proxy: FaultProxy, { host, port }: Broker): void {
  const known = addressOf(host, port);
  const own = addressOf(host, proxy.port);
  proxy.judge = ({ direction, bytes }) => {
    const index = direction === 'to-client' ? bytes.indexOf(known) : -1;
    if (index >= 0) own.copy(bytes, index);
    return 'forward';
  };
}

/** A host with its port as answers of the protocol have them. */
function addressOf(host: string, port: number): Buffer {
  const bytes = Buffer.from(`${host}\0\0\0\0`);
  bytes.writeInt32BE(port, bytes.length - 4);
  return bytes;
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
