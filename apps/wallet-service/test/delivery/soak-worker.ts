import { type FileHandle, open } from 'node:fs/promises';
import { type Clock, openDatabases, parseFrameworkConfig, systemClock } from '@framework/core';
import { postgres } from '@framework/drizzle-adapter';
import { Delivery, type EventEnvelope, type EventHandler, RetryLaterError } from '@framework/events';

/** What a worker of the soak meets; the test changes it with a message. */
export interface Conditions {
  /** Whether what both handlers depend on is down. */
  readonly isDown: boolean;
  /** By how much the wall clock of the process is wrong. */
  readonly clockErrorMs: number;
}

/** A handled event. All workers append to one file, so its lines have the order in which events were handled. */
export interface HandledEvent {
  readonly handler: string;
  readonly worker: string;
  /** When the call began, by the monotonic clock of the machine, in nanoseconds. */
  readonly begun: string;
  readonly modelId: string;
  readonly version: number;
  readonly eventId: string;
}

// A process that delivers the events of two shards until the test ends it.
const { SOAK_WORKER: worker = '', SOAK_FILE: file = '', SOAK_URLS: urls = '' } = process.env;
let conditions: Conditions = { isDown: false, clockErrorMs: 0 };
process.on('message', (message) => (conditions = message as Conditions));
process.on('disconnect', () => process.exit());

const realNow = Date.now;
Date.now = () => realNow() + conditions.clockErrorMs;
const clock: Clock = { ...systemClock, now: () => new Date(Date.now()) };

/** Records events. While what it depends on is down, it throws an error of its own, which counts as an attempt. */
class RecordOrThrow implements EventHandler<undefined> {
  static readonly handlerName: string = 'throws an error';
  // An outage of ten seconds must not have made the waits longer than the time for the recovery.
  static readonly options: object = { startFrom: 'beginning', retry: { backoffMaxMs: 1_000 } };
  readonly event = 'all';
  protected readonly reason: Error = new Error('What this handler depends on is down');

  constructor(private readonly record: FileHandle) {}

  async handle({ modelId, modelVersion: version, eventId }: EventEnvelope<undefined>): Promise<void> {
    const begun = String(process.hrtime.bigint());
    if (conditions.isDown) throw this.reason;
    const { handlerName: handler } = this.constructor as typeof RecordOrThrow;
    const handled: HandledEvent = { handler, worker, begun, modelId, version, eventId };
    // A single write, so that lines of several processes are never mixed.
    await this.record.write(`${JSON.stringify(handled)}\n`);
  }
}

/** Records events, too, but asks to be called again later, as handlers should. */
class RecordOrWait extends RecordOrThrow {
  static override readonly handlerName: string = 'asks to wait';
  static override readonly options: object = { startFrom: 'beginning' };
  protected override readonly reason: Error = new RetryLaterError({ afterMs: 1_000 });
}

const groups = (JSON.parse(urls) as readonly string[]).map((url, group) => ({
  group,
  name: `group-${group}`,
  members: [{ member: 0, name: `member-${group}`, configs: { 'primary-config': { 'jdbc-url': url } } }],
}));
const sharding = { 'default-shard': { group: 0, member: 0 }, groups };
const config = parseFrameworkConfig({ framework: { namespace: 'com.example.soak', sharding } });
const databases = openDatabases(config.sharding, postgres());
await databases.ready();
const record = await open(file, 'a');
const delivery = new Delivery({
  databases,
  executor: { execute: () => Promise.reject(new Error('unused')), onCommit: () => () => undefined },
  handlers: [new RecordOrThrow(record), new RecordOrWait(record)],
  // With the default, 10 s, the leases of a killed process would last as long as the whole recovery may.
  settings: { leaseMs: 5_000 },
  clock,
  onAttemptFailed: () => undefined,
});
delivery.start();
await delivery.started();
process.send?.('started');
