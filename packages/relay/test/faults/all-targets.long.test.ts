import { Delivery, DeliveryOperator } from '@framework/events';
import { slotOf } from '@framework/core/adapter';
import { createTestDatabase } from '@framework/testing/postgres';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';

import { openRelays } from '../../src/relay-config.js';
import { openLog } from '../streamed.js';
import type { ArrivedMessage } from './arrivals.js';
import type { OwnBroker, Trouble } from './own-broker.js';
import { ownKafka } from './own-kafka.js';
import { ownNats } from './own-nats.js';
import { ownRabbitMq } from './own-rabbitmq.js';
import { ownRedis } from './own-redis.js';
import { OwnWebhook } from './own-webhook.js';

/** `RELAY_MINUTES=20` is the full form. */
const minutes = Number(process.env['RELAY_MINUTES'] ?? 4);
const perSecond = 500;
const modelCount = 250;
/** A target has recovered when an event of each model has arrived within this time. */
const recoveredMs = 1_000;
/** How long it may take to recover from a trouble of 20 s. */
const recoveryMaxMs = 30_000;
const tickMs = 100;

const openings = (await Promise.all([ownNats(), ownRabbitMq(), ownKafka(), ownRedis()])).filter(
  (open) => open !== undefined,
);

/** How many events took how long, in memory that does not grow. */
class Latencies {
  /** By milliseconds; the last one counts those that took longer. */
  readonly #counts = new Uint32Array(60_000);
  #total = 0;

  /** The time within which 99 of 100 arrived. */
  get p99(): number {
    let left = this.#total * 0.99;
    return this.#counts.findIndex((count) => (left -= count) <= 0);
  }

  add(ms: number): void {
    const index = Math.min(this.#counts.length - 1, Math.max(0, ms));
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#total++;
  }
}

/** What has arrived at a target: the last version of each model, and how long events took while it was well. */
class Target {
  readonly name: string;
  repeatCount = 0;
  disorderCount = 0;
  /** Repeats of messages that arrived when nothing was wrong with the target. */
  needlessCount = 0;
  readonly calm: Latencies = new Latencies();
  readonly whileOthersFail: Latencies = new Latencies();
  /** The longest time from the end of a trouble until it had recovered. */
  recoveryMs = 0;
  #hasTrouble = false;
  #troubleEndedMs = 0;
  #wellSinceMs = 0;
  /** The models of which no event has arrived in time since the last trouble. */
  #recovering: Set<string> = new Set();
  readonly #versions = new Map<string, number>();

  constructor(name: string) {
    this.name = name;
  }

  get isWell(): boolean {
    return !this.#hasTrouble && this.#recovering.size === 0;
  }

  /** Whether the last version of every model has arrived. */
  hasAll(version: number): boolean {
    return (
      this.#versions.size === modelCount && [...this.#versions.values()].every((each) => each === version)
    );
  }

  begin(): void {
    if (!this.isWell) this.recoveryMs = Infinity;
    this.#hasTrouble = true;
  }

  end(): void {
    this.#hasTrouble = false;
    this.#troubleEndedMs = Date.now();
    this.#recovering = new Set(this.#versions.keys());
  }

  add({ attributes, body }: ArrivedMessage, isCalm: boolean): void {
    const { subject = '', modelversion } = attributes;
    const version = Number(modelversion);
    const last = this.#versions.get(subject) ?? 0;
    if (version <= last) {
      this.repeatCount++;
      if (this.isWell) this.needlessCount++;
      return;
    }
    if (version !== last + 1) this.disorderCount++;
    this.#versions.set(subject, version);
    const { sentAtMs } = JSON.parse(body) as { readonly sentAtMs: number };
    const now = Date.now();
    if (now - sentAtMs <= recoveredMs && this.#recovering.delete(subject) && this.isWell) {
      this.#wellSinceMs = now;
      this.recoveryMs = Math.max(this.recoveryMs, now - this.#troubleEndedMs);
    }
    // What was sent before waited for the target itself.
    const isSentWhenWell = this.isWell && sentAtMs > this.#wellSinceMs;
    if (isCalm || isSentWhenWell) (isCalm ? this.calm : this.whileOthersFail).add(now - sentAtMs);
  }
}

/** The heap after everything that is not reachable is gone, in MB. */
function heapMb(): number {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage().heapUsed / 1e6;
}

function rssMb(): string {
  return (process.memoryUsage().rss / 1e6).toFixed(0);
}

function say(text: string): void {
  // oxlint-disable-next-line no-console -- what a run has measured
  console.log(text);
}

/** A log whose events six relays publish at the same time, each to a target of its own. */
async function relayedSixfold() {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const databases = openLog(database.url);
  await databases.ready();
  const brokers = await Promise.all(openings.map((open) => open()));
  onTestFinished(async () => {
    await Promise.all(brokers.map((broker) => broker.end()));
  });
  for (const broker of brokers) {
    await broker.start();
    await broker.prepare();
  }
  const webhooks = [await OwnWebhook.start('webhook 1'), await OwnWebhook.start('webhook 2')];
  onTestFinished(async () => {
    await Promise.all(webhooks.map((webhook) => webhook.end()));
  });
  const targets = new Map([...brokers, ...webhooks].map(({ name }) => [name, new Target(name)]));
  const log = { isCalm: false, databases, brokers, webhooks, targets: [...targets.values()] };
  for (const broker of brokers)
    broker.consume((message) => targets.get(broker.name)?.add(message, log.isCalm));
  for (const webhook of webhooks)
    webhook.onArrived = (message) => targets.get(webhook.name)?.add(message, log.isCalm);

  const sections = [...brokers, ...webhooks].map(({ name, section }) => ({
    name,
    startFrom: 'beginning',
    ...section,
  }));
  const relays = await openRelays({ namespace: 'com.example', relay: sections });
  const counted: string[] = [];
  const delivery = new Delivery({
    databases,
    executor: { execute: () => Promise.reject(new Error('unused')), onCommit: () => () => undefined },
    handlers: relays,
    onError: () => undefined,
    onRecovered: () => undefined,
    onAttemptFailed: ({ handler, counted: isCounted, error }) => {
      if (isCounted) counted.push(`${handler}: ${String(error)}`);
    },
  });
  delivery.start();
  await delivery.started();
  onTestFinished(async () => {
    await delivery.stop({ timeoutMs: 5_000 });
    await Promise.all(relays.map(({ broker }) => broker.close()));
  });
  const writer = await Writer.connect(database.url);
  const writing = writer.run();
  /** Stops writing, and waits until every target has everything. Returns the number of events. */
  const finish = async (): Promise<number> => {
    writer.stop();
    await writing;
    const { version } = writer;
    await expect
      .poll(() => log.targets.filter((target) => !target.hasAll(version)).map(({ name }) => name), {
        timeout: 120_000,
      })
      .toEqual([]);
    return version * modelCount;
  };
  return Object.assign(log, { counted, relays, writer, finish });
}

test.skipIf(openings.length < 4)(
  'six targets get every event in order while each of them has trouble in turn, and no repeat because of another one',
  async () => {
    const log = await relayedSixfold();
    const { brokers, webhooks, counted, writer } = log;
    await delay(10_000);
    log.isCalm = true;
    await delay(30_000);
    log.isCalm = false;
    const heapBefore = heapMb();
    const rssBefore = rssMb();

    const troubles = [...brokers.flatMap(troublesOf), ...webhooks.slice(1).flatMap(ofWebhook)];
    const eachMs = (minutes * 60_000) / troubles.length;
    for (const { target, name, begin, end } of troubles) {
      const own = log.targets.find((each) => each.name === target);
      own?.begin();
      await begin();
      await delay(eachMs / 3);
      await end();
      own?.end();
      await delay((eachMs * 2) / 3);
      say(`${target} ${name}: ${counted.length} attempts counted; ${rssMb()} MB`);
    }
    const eventCount = await log.finish();
    for (const { name, calm, whileOthersFail, recoveryMs, repeatCount, needlessCount } of log.targets)
      say(
        `${name}: p99 ${calm.p99} ms undisturbed, ${whileOthersFail.p99} ms while others had trouble, recovered ${recoveryMs} ms after its own, ` +
          `${repeatCount} repeats, ${needlessCount} of them needless`,
      );
    say(
      `${eventCount} events; heap ${heapBefore.toFixed(0)} → ${heapMb().toFixed(0)} MB, ` +
        `RSS ${rssBefore} → ${rssMb()} MB; ${writer.slowestMs} ms the slowest commit`,
    );
    expect(counted).toEqual([]);
    for (const target of log.targets) {
      const { name, disorderCount, needlessCount, calm, whileOthersFail, recoveryMs } = target;
      const isSlow = whileOthersFail.p99 > Math.max(200, 2 * calm.p99);
      const hasRecovered = recoveryMs < recoveryMaxMs;
      expect({ name, disorderCount, needlessCount, isSlow, hasRecovered }).toEqual({
        name,
        disorderCount: 0,
        needlessCount: 0,
        isSlow: false,
        hasRecovered: true,
      });
    }
    expect((await new DeliveryOperator(log.databases).lag()).items).toMatchObject(
      log.relays.map(() => ({ blockedCount: 0, deadCount: 0 })),
    );
  },
  (minutes + 10) * 60_000,
);

test.skipIf(openings.length < 4)(
  'relays to six targets need no more memory at the end than after a sixth of the time',
  async () => {
    const log = await relayedSixfold();
    const rssMbs: number[] = [];
    const heapMbs: number[] = [];
    for (let sixth = 1; sixth <= 6; sixth++) {
      await delay((minutes * 60_000) / 6);
      rssMbs.push(process.memoryUsage().rss / 1e6);
      // A collection may shrink what the process occupies, so there is none in between.
      if (sixth === 1 || sixth === 6) heapMbs.push(heapMb());
      say(`${(minutes * sixth) / 6} minutes: RSS ${rssMb()} MB`);
    }
    const eventCount = await log.finish();
    const [rssGrowth, heapGrowth] = [rssMbs, heapMbs].map((mbs) => mbs.at(-1)! / mbs[0]!);
    say(`${eventCount} events; ${JSON.stringify({ rssMbs, heapMbs, rssGrowth, heapGrowth })}`);
    expect(log.targets.map(({ repeatCount, disorderCount }) => repeatCount + disorderCount)).toEqual(
      log.targets.map(() => 0),
    );
    // A short run begins before everything is compiled and every buffer has its size.
    const growthMax = minutes >= 30 ? 1.05 : 1.3;
    expect(rssGrowth).toBeLessThan(growthMax);
    expect(heapGrowth).toBeLessThan(growthMax);
  },
  (minutes + 10) * 60_000,
);

interface TargetTrouble extends Trouble {
  readonly target: string;
}

function troublesOf(broker: OwnBroker): readonly TargetTrouble[] {
  const target = broker.name;
  return [
    { target, name: 'is restarted', begin: () => broker.stop('SIGTERM'), end: () => broker.start() },
    { target, name: 'is killed', begin: () => broker.stop('SIGKILL'), end: () => broker.start() },
    ...broker.troubles.map((trouble) => ({ target, ...trouble })),
  ];
}

function ofWebhook({ name: target, troubles }: OwnWebhook): readonly TargetTrouble[] {
  return troubles.map((trouble) => ({ target, ...trouble }));
}

/** Commits events at a steady rate, one further version of some models at a time. */
class Writer {
  version = 0;
  slowestMs = 0;
  readonly #client: pg.Client;
  #isOver = false;

  private constructor(client: pg.Client) {
    this.#client = client;
  }

  static async connect(url: string): Promise<Writer> {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => undefined);
    await client.connect();
    onTestFinished(() => client.end().catch(() => undefined));
    return new Writer(client);
  }

  /** Ends with the same version of each model. */
  async run(): Promise<void> {
    const startedAtMs = performance.now();
    const size = (perSecond * tickMs) / 1_000;
    for (let tick = 0; ; tick++) {
      const from = (tick * size) % modelCount;
      if (from === 0) {
        if (this.#isOver) return;
        this.version++;
      }
      const begunMs = performance.now();
      await this.#write(Array.from({ length: size }, (_unused, index) => `model-${from + index}`));
      this.slowestMs = Math.max(this.slowestMs, Math.round(performance.now() - begunMs));
      await delay(Math.max(0, startedAtMs + (tick + 1) * tickMs - performance.now()));
    }
  }

  stop(): void {
    this.#isOver = true;
  }

  async #write(models: readonly string[]): Promise<void> {
    const payload = { sentAtMs: Date.now(), text: 'x'.repeat(200) };
    const rows = models.map((id) => ({ id, slot: slotOf(id, 16), version: this.version, payload }));
    await this.#client.query(
      `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
         model_name, model_version, event_type, payload, headers, started_date, slot)
       select gen_random_uuid(), gen_random_uuid(), 0, 'com.example', 'Write', '{}', 'test', id, 'Thing', version,
         'ThingChangedEvent', payload, '{}', now(), slot
       from jsonb_to_recordset($1) as given (id text, slot integer, version bigint, payload jsonb)`,
      [JSON.stringify(rows)],
    );
  }
}
