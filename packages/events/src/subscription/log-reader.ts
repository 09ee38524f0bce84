import type {
  Cursor,
  DeliverableEvent,
  DeliveryLog,
  EventBatch,
  LogPartitions,
} from '@framework/core/adapter';

import { type EngineSettings, eventBytesMax } from '../delivery-settings.js';
import { type WorkerContext, WakeSignal } from '../worker-context.js';

/** About how many bytes of an event are in memory: large ones come without payload and params. */
export function heldBytes({ bytes = 0, omitted = false }: DeliverableEvent): number {
  return omitted ? 0 : bytes;
}

/** A batch of the log, and how much was known of commits when its reading began. */
export interface ReadBatch extends EventBatch {
  readonly generation: number;
}

interface Entry {
  readonly generation: number;
  readonly batch: Promise<ReadBatch>;
  /** Whether it holds something, which stays true; undefined while it is being read. */
  full: boolean | undefined;
  /** How many bytes of events it holds; 0 while it is being read. */
  bytes: number;
}

/** Handlers that stand at the same place ask at about the same time; what is kept longer only fills memory. */
const entriesMax = 4;

/** Reads the log of one database; handlers that stand at the same place share one read. */
export class LogReader {
  readonly #log: Pick<DeliveryLog, 'read'>;
  readonly #readMax: number;
  readonly #bytesMax: number;
  readonly #keptBytesMax: number;
  /** In the order of use. */
  readonly #entries = new Map<string, Entry>();
  #generation = 0;
  #foundCount = 0;

  constructor(log: Pick<DeliveryLog, 'read'>, settings: Pick<EngineSettings, 'readMax' | 'readBytesMax'>) {
    this.#log = log;
    this.#readMax = settings.readMax;
    this.#bytesMax = eventBytesMax(settings);
    this.#keptBytesMax = settings.readBytesMax;
  }

  /** Grows whenever something may have been committed. */
  get generation(): number {
    return this.#generation;
  }

  /** How many events were read so far. */
  get foundCount(): number {
    return this.#foundCount;
  }

  /** Says that something may have been committed: what was read and found empty before is read again. */
  refresh(): void {
    this.#generation++;
  }

  /** Reads what follows a cursor; the batch may be shared, and is bounded by `readMax`. */
  read(slots: readonly number[], cursor: Cursor): Promise<ReadBatch> {
    const key = `${slots.join()} ${cursor}`;
    const known = this.#entries.get(key);
    if (known !== undefined && (known.full === true || known.generation === this.#generation)) {
      return known.batch;
    }
    const entry: Entry = {
      generation: this.#generation,
      batch: this.#read(slots, cursor, this.#generation),
      full: undefined,
      bytes: 0,
    };
    this.#remember(key, entry);
    void this.#settle(key, entry);
    return entry.batch;
  }

  async #read(slots: readonly number[], cursor: Cursor, generation: number): Promise<ReadBatch> {
    const batch = await this.#log.read(slots, cursor, this.#readMax, this.#bytesMax);
    return { ...batch, generation };
  }

  async #settle(key: string, entry: Entry): Promise<void> {
    try {
      const { events, more } = await entry.batch;
      entry.full = events.length > 0 || more;
      entry.bytes = events.reduce((sum, event) => sum + heldBytes(event), 0);
      this.#foundCount += events.length;
      this.#forget();
    } catch {
      // Whoever asked for the batch is told; the next one reads anew.
      if (this.#entries.get(key) === entry) this.#entries.delete(key);
    }
  }

  #remember(key: string, entry: Entry): void {
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    this.#forget();
  }

  /** Keeps the entries that were used last, of which those that were read hold no more bytes than one read may have. */
  #forget(): void {
    let [count, bytes] = [0, 0];
    for (const [key, entry] of [...this.#entries].toReversed()) {
      count++;
      bytes += entry.bytes;
      if (count > entriesMax || bytes > this.#keptBytesMax) this.#entries.delete(key);
    }
  }
}

/** Has the log of one database looked at: at once when it is told to, else more rarely the longer nothing comes. */
export class LogPoll {
  readonly #context: WorkerContext;
  readonly #foundCount: () => number;
  readonly #look: () => void;
  readonly #wakeSignal: WakeSignal;

  constructor(options: {
    readonly context: WorkerContext;
    /** How many events were found so far. */
    readonly foundCount: () => number;
    readonly look: () => void;
  }) {
    this.#context = options.context;
    this.#foundCount = options.foundCount;
    this.#look = options.look;
    this.#wakeSignal = new WakeSignal(options.context.clock);
  }

  /** Has it looked at once, because something may have been committed. */
  wake(): void {
    this.#wakeSignal.wake();
  }

  /** Goes on until delivery stops. */
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

/** How long it waits for the next try when a long reader of the log has prevented the change. */
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
