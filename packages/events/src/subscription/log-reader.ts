import type {
  Cursor,
  DeliverableEvent,
  DeliveryLog,
  EventBatch,
  LogPartitions,
} from '@framework/core/adapter';

import { type EngineSettings, eventBytesMax } from '../delivery-settings.js';
import { type WorkerContext, WakeSignal } from '../worker-context.js';

/** The approximate bytes of an event in memory; of a large event, little more than the headers is in memory. */
export function heldBytes(event: DeliverableEvent): number {
  return event.omitted === true ? JSON.stringify(event.headers).length : (event.bytes ?? 0);
}

/** A batch of the log, and which commits were known when its reading began. */
export interface ReadBatch extends EventBatch {
  readonly generation: number;
}

interface Entry {
  readonly generation: number;
  readonly batch: Promise<ReadBatch>;
  /** Whether there are events after its cursor; once true, that stays true. Undefined while the batch is being read. */
  full: boolean | undefined;
  /** The bytes of its events; 0 while it is being read. */
  bytes: number;
}

/** How many batches are kept. Handlers at the same position read at about the same time; more batches would only cost memory. */
const entriesMax = 4;

/** Reads the log of one database; handlers at the same position share one read. */
export class LogReader {
  readonly #log: Pick<DeliveryLog, 'read'>;
  readonly #settings: Pick<EngineSettings, 'readMax' | 'readBytesMax'>;
  readonly #bytesMax: number;
  /** The batches that are kept, in the order in which their reading began. */
  readonly #entries = new Map<string, Entry>();
  #generation = 0;
  #foundCount = 0;

  constructor(log: Pick<DeliveryLog, 'read'>, settings: Pick<EngineSettings, 'readMax' | 'readBytesMax'>) {
    this.#log = log;
    this.#settings = settings;
    this.#bytesMax = eventBytesMax(settings);
  }

  /** Increases whenever something may have been committed. */
  get generation(): number {
    return this.#generation;
  }

  /** How many events have been read so far. */
  get foundCount(): number {
    return this.#foundCount;
  }

  /** Records that something may have been committed: positions that were found empty before are read again. */
  refresh(): void {
    this.#generation++;
  }

  /** Reads what follows a cursor; the batch may be shared, and is limited by `readMax`. */
  read(slots: readonly number[], cursor: Cursor): Promise<ReadBatch> {
    const key = `${slots.join()} ${cursor}`;
    const known = this.#entries.get(key);
    if (known !== undefined && (known.full === true || known.generation === this.#generation)) {
      return known.batch;
    }
    const generation = this.#generation;
    const batch = this.#log
      .read(slots, cursor, this.#settings.readMax, this.#bytesMax)
      .then((read) => ({ ...read, generation }));
    const entry: Entry = { generation, batch, full: undefined, bytes: 0 };
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    this.#forget();
    void this.#settle(key, entry);
    return entry.batch;
  }

  async #settle(key: string, entry: Entry): Promise<void> {
    try {
      const { events, more } = await entry.batch;
      entry.full = events.length > 0 || more;
      entry.bytes = events.reduce((sum, event) => sum + heldBytes(event), 0);
      this.#foundCount += events.length;
      this.#forget();
    } catch {
      // The callers of this batch get the error; the next call reads again.
      if (this.#entries.get(key) === entry) this.#entries.delete(key);
    }
  }

  /** Forgets all but the newest batches; the ones that are kept have at most as many bytes as one read may return. */
  #forget(): void {
    let [count, bytes] = [0, 0];
    for (const [key, entry] of [...this.#entries].toReversed()) {
      count++;
      bytes += entry.bytes;
      if (count > entriesMax || bytes > this.#settings.readBytesMax) this.#entries.delete(key);
    }
  }
}

/** Polls the log of one database: at once when it is woken, otherwise less often the longer nothing happens. */
export class LogPoll {
  readonly #context: WorkerContext;
  readonly #foundCount: () => number;
  readonly #look: () => void;
  readonly #wakeSignal: WakeSignal;

  /** @param foundCount how many events have been found so far */
  constructor(context: WorkerContext, foundCount: () => number, look: () => void) {
    this.#context = context;
    this.#foundCount = foundCount;
    this.#look = look;
    this.#wakeSignal = new WakeSignal(context.clock);
  }

  /** Polls at once, because something may have been committed. */
  wake(): void {
    this.#wakeSignal.wake();
  }

  /** Polls until delivery stops. */
  async run(): Promise<void> {
    const { settings, stopping } = this.#context;
    const { pollMinMs, pollMaxMs } = settings;
    let waitMs = pollMinMs;
    let foundCount = 0;
    while (!stopping.aborted) {
      const woken = await this.#wakeSignal.wait(waitMs);
      const busy = woken || this.#foundCount() > foundCount;
      foundCount = this.#foundCount();
      waitMs = busy ? pollMinMs : Math.min(pollMaxMs, waitMs * 2);
      this.#look();
    }
  }
}

/** How long to wait before the next try when partitions could not be changed, for example because of a long read of the log. */
const retryMs = 60_000;

/** Creates partitions of the log ahead of time and drops old ones, once per interval until delivery stops. */
export async function keepPartitions(context: WorkerContext, partitions: LogPartitions): Promise<void> {
  const { settings, clock, stopping, onError } = context;
  const isDone = async (work: () => Promise<unknown>): Promise<boolean> => {
    try {
      await work();
      return true;
    } catch (error) {
      onError(error);
      return false;
    }
  };
  while (!stopping.aborted) {
    const isCreated = await isDone(() => partitions.create());
    const isDropped =
      settings.retentionMs === 0 || (await isDone(() => partitions.drop(settings.retentionMs)));
    const waitMs = isCreated && isDropped ? settings.partitionsMs : Math.min(retryMs, settings.partitionsMs);
    await clock.sleep(waitMs, stopping);
  }
}
