import type { DatabaseRegistry } from '@framework/core';
import { Delivery, DeliveryOperator } from '@framework/events';
import { FaultProxy } from '@framework/testing';
import { createTestDatabase } from '@framework/testing/postgres';
import { onTestFinished } from 'vitest';

import type { Relay } from '../../src/index.js';
import { openRelays } from '../../src/relay-config.js';
import { advertise } from '../kafka-topic.js';
import { LogWriter, openLog } from '../streamed.js';
import { Arrivals } from './arrivals.js';
import type { OwnBroker } from './own-broker.js';

const relayName = 'events-to-broker';
/** How long a relay waits for an answer of the broker. */
const answerMaxMs = 2_000;
/** Short leases and pauses, so that a relay that has gone, and a broker that is back, are soon noticed. */
const quickly = {
  leaseMs: 500,
  cursorSaveMs: 50,
  pollMaxMs: 20,
  retry: { backoffBaseMs: 50, backoffMaxMs: 200 },
};
/** The models whose events a log has. */
export const models = Array.from({ length: 20 }, (_unused, index) => `model-${index}`);

/** A log with events that relays publish to a broker, and what has arrived there. */
export class RelayedLog {
  readonly arrivals = new Arrivals();
  readonly #broker: OwnBroker;
  readonly #url: URL;
  readonly #databases: DatabaseRegistry;
  readonly #writer: LogWriter;
  #version = 0;

  private constructor(broker: OwnBroker, url: URL, databases: DatabaseRegistry, writer: LogWriter) {
    this.#broker = broker;
    this.#url = url;
    this.#databases = databases;
    this.#writer = writer;
  }

  static async create(broker: OwnBroker): Promise<RelayedLog> {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    const { url } = database;
    const databases = openLog(url);
    await databases.ready();
    return new RelayedLog(broker, new URL(url), databases, await LogWriter.connect(url));
  }

  /** The last version of each model. */
  get version(): number {
    return this.#version;
  }

  /** Starts a relay that reaches the database and the broker by connections of its own. */
  async startRelay(): Promise<RelayLife> {
    return RelayLife.begin(this.#url, this.#broker);
  }

  /** Commits so many further versions of each model. */
  async write(versionCount: number): Promise<void> {
    for (let count = 0; count < versionCount; count++) {
      this.#version++;
      for (const model of models) await this.#writer.write(model, this.#version);
    }
  }

  /** The ids of all events. */
  async ids(): Promise<readonly string[]> {
    const rows = await this.#writer.query<{ id: string }>('select id from eventlog.events order by id');
    return rows.map(({ id }) => id);
  }

  /** How far behind the relay is, as operators see it. */
  async lag() {
    const { items } = await new DeliveryOperator(this.#databases).lag();
    return items.find(({ handler }) => handler === relayName);
  }
}

/** What a relay reaches its database and its broker through. */
interface Proxies {
  readonly database: FaultProxy;
  readonly broker: FaultProxy;
}

/** A relay that lives until the test is over, or dies as by a power failure: from then on, nothing leaves or reaches it. */
export class RelayLife {
  readonly publisher: Relay;
  /** Whether each attempt that has failed was counted. */
  readonly attempts: ('counted' | 'not counted')[] = [];
  readonly #delivery: Delivery;
  readonly #proxies: Proxies;
  readonly #judge: FaultProxy['judge'];

  private constructor(publisher: Relay, databases: DatabaseRegistry, proxies: Proxies) {
    this.publisher = publisher;
    this.#proxies = proxies;
    this.#judge = proxies.broker.judge;
    this.#delivery = new Delivery({
      databases,
      executor: { execute: () => Promise.reject(new Error('unused')), onCommit: () => () => undefined },
      handlers: [publisher],
      settings: quickly,
      onError: () => undefined,
      onRecovered: () => undefined,
      onAttemptFailed: ({ counted }) => this.attempts.push(counted ? 'counted' : 'not counted'),
    });
  }

  static async begin(url: URL, broker: OwnBroker): Promise<RelayLife> {
    const host = '127.0.0.1';
    const proxies = {
      database: await FaultProxy.to({ host: url.hostname, port: Number(url.port) }),
      broker: await FaultProxy.to({ host, port: broker.port }),
    };
    advertise(proxies.broker, { host, port: broker.port });
    const section = {
      name: relayName,
      startFrom: 'beginning',
      ...broker.sectionAt(proxies.broker.port, answerMaxMs),
    };
    const [publisher] = await openRelays({ namespace: 'com.example', relay: [section] });
    if (publisher === undefined) throw new Error('There is no relay');
    const through = new URL(url);
    through.host = `${host}:${proxies.database.port}`;
    const life = new RelayLife(publisher, openLog(through.href), proxies);
    onTestFinished(() => life.end());
    life.#delivery.start();
    await life.#delivery.started();
    return life;
  }

  /** Lets nothing of the broker reach the relay any more, while the broker still gets what the relay sends. */
  deafen(): void {
    this.#proxies.broker.judge = (message) =>
      message.direction === 'to-client' ? 'drop' : this.#judge(message);
  }

  hear(): void {
    this.#proxies.broker.judge = this.#judge;
  }

  async die(): Promise<void> {
    const { database, broker } = this.#proxies;
    await Promise.all([database.refuse(), broker.refuse()]);
  }

  async end(): Promise<void> {
    await this.#delivery.stop({ timeoutMs: 100 });
    await this.publisher.broker.close();
    await this.die();
  }
}
