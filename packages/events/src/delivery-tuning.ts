/**
 * The limits and times of delivery that nobody has to know who runs it: fixed, or derived from the settings. Tests and
 * simulations vary them by {@link tuned}, which production code has no reason to call.
 */
export interface DeliveryTuning {
  /** The shortest time between two looks at the log when nothing wakes earlier. */
  readonly pollMinMs: number;
  /** How often blocked events are looked for while none of them waits for a known time, such as replayed ones. */
  readonly blockedPollMs: number;
  /** About how many events are read at once. */
  readonly readMax: number;
  /** How many events of one handler may be read and not finished. */
  readonly unfinishedMax: number;
  /** How many events of one handler may be finished beyond its saved cursors: so many a crash repeats. */
  readonly unsavedMax: number;
  /** A cursor that passed so many wanted events is saved: about so many per slot a crash repeats. */
  readonly cursorSaveEvents: number;
  /** After how long a cursor that passed wanted events is saved at the latest. */
  readonly cursorSaveMaxMs: number;
  /** The shortest time between two savings of cursors, so that many are saved by one statement. */
  readonly cursorSaveMinMs: number;
  /** After how long cursors that passed only unwanted events are saved. */
  readonly cursorRestSaveMs: number;
  /** How many events are blocked by one statement. */
  readonly blockMax: number;
  /** How many blocked models of each handler are looked at by one statement. */
  readonly dueMax: number;
  /** How many bytes of events a batch handler receives at most, unless one event alone has more. */
  readonly batchBytesMax: number;
  /** How many calls, of all handlers of the process, may ignore their signal and run on before it makes no new ones. */
  readonly abandonedMax: number;
  /** For how long there may be so many before the process releases its leases and requests a restart. */
  readonly abandonedForMs: number;
  /** For how long an event during whose call a process ended is tried alone, per process; it doubles with each end. */
  readonly quarantineMs: number;
  /**
   * The longest wait after a call that was no attempt, because storage or a shard could not serve, where `retry.backoffMaxMs` is
   * not less: so long after the outage the event is tried again at the latest.
   */
  readonly outageBackoffMaxMs: number;
  /** The first wait after the database failed; it doubles. */
  readonly storeBackoffBaseMs: number;
  /** The longest one. */
  readonly storeBackoffMaxMs: number;
  /** The shortest time between two notifications to other processes. */
  readonly notifyCoalesceMs: number;
  /** How often partitions of the log are created ahead and dropped. */
  readonly partitionsMs: number;
}

const fixedTuning = {
  readMax: 1_000,
  unfinishedMax: 2_000,
  unsavedMax: 10_000,
  cursorSaveEvents: 100,
  blockMax: 500,
  dueMax: 200,
  abandonedMax: 64,
  abandonedForMs: 10_000,
  quarantineMs: 1_000,
  outageBackoffMaxMs: 5_000,
  storeBackoffBaseMs: 100,
  storeBackoffMaxMs: 5_000,
  notifyCoalesceMs: 20,
  partitionsMs: 86_400_000,
} as const satisfies Partial<DeliveryTuning>;

/** The shortest time between two notifications to other processes, also where a process delivers nothing itself. */
export const { notifyCoalesceMs } = fixedTuning;

/** The longest timer. */
const timerMaxMs = 2 ** 31 - 1;

/** What follows from the settings; what is fixed is beside it. */
export function tuningFor(settings: {
  readonly pollMaxMs: number;
  readonly cursorSaveMs: number;
  readonly readBytesMax: number;
}): DeliveryTuning {
  const { pollMaxMs, cursorSaveMs, readBytesMax } = settings;
  return {
    ...fixedTuning,
    pollMinMs: Math.ceil(pollMaxMs / 4),
    blockedPollMs: Math.min(timerMaxMs, 2 * pollMaxMs),
    cursorSaveMinMs: Math.ceil(cursorSaveMs / 10),
    cursorSaveMaxMs: Math.min(timerMaxMs, 10 * cursorSaveMs),
    cursorRestSaveMs: Math.min(timerMaxMs, 30 * cursorSaveMs),
    batchBytesMax: Math.ceil(readBytesMax / 2),
    ...tuningOfProcess,
  };
}

let tuningOfProcess: Partial<DeliveryTuning> = {};

/** Tunes every delivery that this process makes from now on: for a test that starts a program as it is. */
export function tuneProcess(tuning: Partial<DeliveryTuning>): void {
  tuningOfProcess = tuning;
}

/** Where overrides of the settings carry what is tuned: no text in a configuration file is it, and a copy by spread has it, too. */
const tuningKey = Symbol('tuning');

interface Tuned {
  readonly [tuningKey]?: Partial<DeliveryTuning>;
}

const tuningNames: ReadonlySet<string> = new Set(
  Object.keys(tuningFor({ pollMaxMs: 1, cursorSaveMs: 1, readBytesMax: 1 })),
);

/** Gives overrides of the settings that tune what is fixed or derived, too; what they had tuned before stays. */
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

/** What {@link tuned} has put into overrides. */
export function tuningIn(overrides: object): Partial<DeliveryTuning> {
  return (overrides as Tuned)[tuningKey] ?? {};
}
