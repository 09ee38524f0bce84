import { type DeliveryFixture, firstShard } from '@framework/conformance';
import { type DatabaseRegistry, openDatabases } from '@framework/core';

import { VirtualClock } from '../../src/index.js';
import { MemoryServer, memory, memorySharding } from '../../src/memory/index.js';

const sharding = memorySharding(firstShard);

/** The delivery suite's fixture in memory, in virtual time. */
export class MemoryDeliveryFixture implements DeliveryFixture {
  readonly #clock = new VirtualClock();
  readonly #server = new MemoryServer(sharding, { clock: this.#clock });
  readonly databases: DatabaseRegistry = openDatabases(sharding, memory({ server: this.#server }));

  pass(durationMs: number): Promise<void> {
    return this.#clock.advance(durationMs);
  }

  async emptyLog(): Promise<void> {
    this.#server.tables(firstShard).delivery.log.length = 0;
  }

  async clear(): Promise<void> {
    const tables = this.#server.tables(firstShard);
    tables.clear();
    tables.delivery.processes.clear();
    for (const handler of tables.delivery.handlers.keys()) tables.delivery.forget(handler);
  }

  close(): Promise<void> {
    return this.databases.close();
  }
}
