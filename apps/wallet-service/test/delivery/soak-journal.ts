import { randomUUID } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { setInterval } from 'node:timers/promises';
import { slotOf } from '@framework/core/adapter';
import pg from 'pg';
import type { HandledEvent } from './soak-worker.js';

/** How often a process that executes actions notifies others of its commits at most. */
const notifyIntervalMs = 20;
const slotCount = 16;

/** A session that commits events, each in a transaction of its own. */
export interface Stream {
  readonly name: string;
  readonly url: string;
  readonly modelIds: readonly string[];
  readonly eventsPerSecond: number;
}

/** Compares what is committed with what the handlers handle, while it happens. */
export class SoakJournal {
  /** What must never happen. */
  readonly violations: string[] = [];
  committedCount = 0;
  readonly #handlers: readonly string[];
  readonly #onRepeat: () => void;
  readonly #file: number;
  readonly #buffer = Buffer.alloc(1_048_576);
  #cutLine = '';
  /** By handler and model: the last version that was handled, and the highest one. */
  readonly #handled = new Map<string, { last: number; highest: number }>();
  /** By handler and stream, and then by id: when the events that are not handled yet were committed, the oldest first. */
  readonly #waiting = new Map<string, Map<string, number | undefined>>();
  readonly #streamOf = new Map<string, string>();
  readonly #continued = new Map<string, bigint>();

  /** @param file to which the workers append what they have handled */
  constructor(file: string, handlers: readonly string[], streams: readonly Stream[], onRepeat: () => void) {
    this.#file = openSync(file, 'r');
    this.#handlers = handlers;
    this.#onRepeat = onRepeat;
    for (const { name, modelIds } of streams) {
      for (const handler of handlers) this.#waiting.set(`${handler}/${name}`, new Map());
      for (const modelId of modelIds) this.#streamOf.set(modelId, name);
    }
  }

  /** Commits events of random models of a stream until the signal is aborted. */
  async write(stream: Stream, random: () => number, over: AbortSignal): Promise<void> {
    const { name, url, modelIds, eventsPerSecond } = stream;
    const waiting = this.#handlers.map((handler) => this.#waiting.get(`${handler}/${name}`)!);
    const versions = new Map<string, number>();
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    const startedMs = performance.now();
    let count = 0;
    for await (const now of setInterval(notifyIntervalMs, () => performance.now())) {
      if (over.aborted) break;
      for (const dueCount = ((now() - startedMs) / 1_000) * eventsPerSecond; count < dueCount; count++) {
        const modelId = modelIds[Math.floor(random() * modelIds.length)]!;
        const version = (versions.get(modelId) ?? 0) + 1;
        versions.set(modelId, version);
        const id = randomUUID();
        // It may be handled before the answer to its commit is here.
        for (const ids of waiting) ids.set(id, undefined);
        await client.query({
          name: 'write',
          text: `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
              model_name, model_version, event_type, payload, headers, started_date, slot)
            values ($1, $1, 0, 'com.example.soak', 'Write', '{}', 'soak', $2, 'Thing', $3, 'ThingChangedEvent', '{}', '{}', now(), $4)`,
          values: [id, modelId, version, slotOf(modelId, slotCount)],
        });
        for (const ids of waiting) if (ids.has(id)) ids.set(id, performance.now());
        this.committedCount++;
      }
      await client.query('notify eventlog');
    }
    await client.end();
  }

  /** Reads what has been handled since the last call. */
  read(): void {
    for (let length = this.#buffer.length; length === this.#buffer.length;) {
      length = readSync(this.#file, this.#buffer);
      const lines = (this.#cutLine + this.#buffer.toString('latin1', 0, length)).split('\n');
      this.#cutLine = lines.pop()!;
      for (const line of lines) this.#check(JSON.parse(line) as HandledEvent);
    }
  }

  /** The age of the oldest event of a stream that was committed, but not handled by a handler, in milliseconds. */
  lagMs(handler: string, { name }: Stream): number {
    for (const committedMs of this.#waiting.get(`${handler}/${name}`)!.values())
      if (committedMs !== undefined) return performance.now() - committedMs;
    return 0;
  }

  /** How many events have not been handled, those of each handler counted separately. */
  get waitingCount(): number {
    return [...this.#waiting.values()].reduce((sum, { size }) => sum + size, 0);
  }

  /** Expects a worker that was stopped to end the calls that it had begun, even if another one has taken over. */
  continues(worker: string): void {
    this.#continued.set(worker, process.hrtime.bigint());
  }

  close(): void {
    closeSync(this.#file);
  }

  #check(event: HandledEvent): void {
    const { handler, worker, begun, modelId, version, eventId } = event;
    const key = `${handler}/${modelId}`;
    const { last, highest } = this.#handled.get(key) ?? { last: 0, highest: 0 };
    const isFirst = this.#waiting.get(`${handler}/${this.#streamOf.get(modelId)}`)!.delete(eventId);
    const isLate = BigInt(begun) < (this.#continued.get(worker) ?? 0n) && version !== last + 1;
    if (!isFirst) this.#onRepeat();
    const isNext = isFirst ? version === highest + 1 : version <= highest;
    // A repetition may begin at any version, and leaves none out from there.
    const leavesOut = version > last + 1 && !isLate;
    if (!isNext || leavesOut)
      this.violations.push(`${JSON.stringify(event)} after version ${last}, when ${highest} was the highest`);
    this.#handled.set(key, { last: isLate ? last : version, highest: Math.max(highest, version) });
  }
}
