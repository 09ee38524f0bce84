import { setTimeout as pause } from 'node:timers/promises';
import { Delivery } from '@framework/events';
import pg from 'pg';
import type { Benchmark } from '../benchmark/benchmark.js';
import { openWalletService } from '../load/bench-wallets.js';
import { recordingHandler } from './recording-handler.js';

const handlerCount = 10;
const settleMs = 5_000;
const durationMs = 30_000;

/** How many statements a process sends while nothing happens. */
export const idleStatements: Benchmark = {
  name: 'delivery-idle',
  async run({ server, scale }) {
    const service = await openWalletService([await server.createDatabase(), await server.createDatabase()]);
    const handlers = Array.from({ length: handlerCount }, (_, index) => recordingHandler(`idle-${index}`));
    const delivery = new Delivery({ databases: service.databases, executor: service.executor, handlers });
    delivery.start();
    await pause(settleMs);
    const counter = countStatements();
    await pause(durationMs * scale);
    const statements = counter.stop();
    await delivery.stop();
    await service.databases.close();
    const seconds = (durationMs * scale) / 1_000;
    return [
      {
        title: `idle statements per second and process, 2 shards, ${handlerCount} handlers`,
        value: statements / seconds,
        unit: 'statements',
        atMost: 10,
        measured: { statements, seconds },
      },
    ];
  },
};

/** Counts the statements that all clients of this process send. */
function countStatements(): { stop(): number } {
  const prototype: { query: (this: pg.Client, ...args: never[]) => unknown } = pg.Client.prototype;
  const { query } = prototype;
  let count = 0;
  prototype.query = function counted(...args) {
    count++;
    return Reflect.apply(query, this, args);
  };
  return {
    stop: () => {
      prototype.query = query;
      return count;
    },
  };
}
