import {
  AclOperations,
  AclPermissionTypes,
  Admin,
  type Broker,
  ConfigResourceTypes,
  IncrementalAlterConfigOperationTypes,
  ResourcePatternTypes,
  ResourceTypes,
} from '@platformatic/kafka';
import type { FaultProxy } from '@framework/testing';
import { vi } from 'vitest';

import { KafkaReader, type StoredRecord } from './kafka-reader.js';

const readyMaxMs = 30_000;

/** A topic of a test's own, read from its beginning. */
export class KafkaTopic {
  readonly name: string;
  readonly #admin: Admin;
  readonly #reader: KafkaReader;
  readonly #read: StoredRecord[] = [];

  private constructor(name: string, admin: Admin) {
    this.name = name;
    this.#admin = admin;
    this.#reader = new KafkaReader(name);
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
    while (!(await this.#reader.readOn(this.#admin, 0, (record) => this.#read.push(record))));
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

  /** Lets it take batches of this many bytes from now on. */
  async limit(messageBytesMax: number): Promise<void> {
    const config = {
      name: 'max.message.bytes',
      configOperation: IncrementalAlterConfigOperationTypes.SET,
      value: String(messageBytesMax),
    };
    await this.#admin.incrementalAlterConfigs({
      resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: this.name, configs: [config] }],
    });
  }

  /** Removes the topic. */
  async close(): Promise<void> {
    await this.#admin.deleteTopics({ topics: [this.name] });
    await this.#admin.close();
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
