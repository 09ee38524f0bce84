/**
 * Limits and times of delivery that operators need not know: fixed, or derived from the settings. Tests and simulations change
 * them with {@link tuned}, which production code has no reason to call.
 */
export type DeliveryTuning = Readonly<ReturnType<typeof derivedTuning>>;

const fixedTuning = {
  /** About how many events are read at once. */
  readMax: 1_000,
  /**
   * How many events of one handler may be read and not finished before only slots that have less than their share of these are read: see
   * `shareOf`.
   */
  unfinishedMax: 2_000,
  /**
   * How many events of one handler may be finished beyond its saved cursors before only slots with less than their share are read;
   * after a crash, events beyond the saved cursors are handled again.
   */
  unsavedMax: 10_000,
  /** After how many wanted events a cursor is saved; after a crash, about this many per slot are handled again. */
  cursorSaveEvents: 100,
  /** How many blocked models are written by one statement. */
  blockMax: 500,
  /** How many blocked models of each handler are read by one statement. */
  dueMax: 200,
  /** How many calls, of all handlers of the process, may ignore their signal and run on before the process makes no new ones. */
  abandonedMax: 64,
  /**
   * How long as many as `abandonedMax` calls may ignore their signal before the process releases its leases and requests a
   * restart.
   */
  abandonedForMs: 10_000,
  /**
   * How long an event is tried alone, within its process, after a process died during its call; it doubles with each such death.
   */
  quarantineMs: 1_000,
  /**
   * The longest wait after a call that did not count because storage or a shard was unavailable, unless `retry.backoffMaxMs` is
   * less: the event is retried within this time after the outage.
   */
  outageBackoffMaxMs: 5_000,
  /** The first wait after the database failed; it doubles with each further failure. */
  storeBackoffBaseMs: 100,
  /** The longest wait after the database failed. */
  storeBackoffMaxMs: 5_000,
  /** The shortest time between two notifications to other processes. */
  notifyCoalesceMs: 20,
  /** How often partitions of the log are created ahead of time, and old ones dropped. */
  partitionsMs: 86_400_000,
};

/** The shortest time between two notifications to other processes, even from a process that does not deliver. */
export const { notifyCoalesceMs } = fixedTuning;

type TunedSettings = Readonly<Record<'pollMaxMs' | 'cursorSaveMs' | 'readBytesMax', number>>;

function derivedTuning({ pollMaxMs, cursorSaveMs, readBytesMax }: TunedSettings) {
  return {
    ...fixedTuning,
    /** The shortest time between two polls of the log, unless something wakes delivery earlier. */
    pollMinMs: Math.ceil(pollMaxMs / 4),
    /** How often a source of events is checked, and each of its cursors is compared with the log. */
    sourceCheckMs: 10 * pollMaxMs,
    /** How often blocked models are polled while none of them is due at a known time, for example to find replayed dead letters. */
    blockedPollMs: 2 * pollMaxMs,
    /** The shortest time between two saves, so that many cursors are saved by one statement. */
    cursorSaveMinMs: Math.ceil(cursorSaveMs / 10),
    /** The longest time until a cursor that passed wanted events is saved. */
    cursorSaveMaxMs: 10 * cursorSaveMs,
    /** How long until cursors that passed only unwanted events are saved. */
    cursorRestSaveMs: 30 * cursorSaveMs,
    /** The maximum number of bytes in a call of a batch handler, unless a single event is larger. */
    batchBytesMax: Math.ceil(readBytesMax / 2),
  };
}

/** The tuning that goes with settings: what is derived from them, and what is fixed. */
export function tuningFor(settings: TunedSettings): DeliveryTuning {
  return { ...derivedTuning(settings), ...tuningOfProcess };
}

let tuningOfProcess: Partial<DeliveryTuning> = {};

/** Tunes every delivery that this process creates from now on: for a test that starts an unmodified program. */
export function tuneProcess(tuning: Partial<DeliveryTuning>): void {
  tuningOfProcess = tuning;
}

/**
 * The key under which overrides carry the tuning: no key in a configuration file can be this symbol, and a copy by spread keeps
 * it.
 */
const tuningKey = Symbol('tuning');

interface Tuned {
  readonly [tuningKey]?: Partial<DeliveryTuning>;
}

const tuningNames: ReadonlySet<string> = new Set(
  Object.keys(tuningFor({ pollMaxMs: 1, cursorSaveMs: 1, readBytesMax: 1 })),
);

/** Returns overrides of the settings that also tune what is fixed or derived; earlier tuning stays. */
export function tuned<Overrides extends object>(
  overrides: Overrides & Partial<DeliveryTuning>,
): Omit<Overrides, keyof DeliveryTuning> {
  const entries = Object.entries(overrides);
  const own = entries.filter(([name, value]) => tuningNames.has(name) && value !== undefined);
  const settings = Object.fromEntries(entries.filter(([name]) => !tuningNames.has(name)));
  return {
    ...settings,
    [tuningKey]: { ...Object.fromEntries(own), ...tuningIn(overrides) },
  } as object as Omit<Overrides, keyof DeliveryTuning>;
}

/** The tuning that {@link tuned} has added to overrides. */
export function tuningIn(overrides: object): Partial<DeliveryTuning> {
  return (overrides as Tuned)[tuningKey] ?? {};
}
