/** Timers cannot wait for longer: they would end at once. */
const timerMaxMs = 2 ** 31 - 1;
/** How many different reasons of failures that go on are told. */
const reasonsMax = 8;

/** Failures that have gone on for a while, when they are over. */
export interface FailureTotal<Subject> {
  readonly subject: Subject;
  readonly count: number;
  /** From the first failure to the last one. */
  readonly durationMs: number;
}

interface Ongoing<Subject> {
  readonly subject: Subject;
  readonly startedMs: number;
  lastMs: number;
  count: number;
  readonly reasons: Set<string>;
  quiet: NodeJS.Timeout | undefined;
}

/**
 * Counts failures that go on, such as those of a thousand requests a second while a shard is away, so that each different reason is
 * told once, and at the end how many there were.
 */
export class RepeatedFailures<Subject> {
  readonly #ongoing = new Map<string, Ongoing<Subject>>();
  readonly #onEnd: (total: FailureTotal<Subject>) => void;
  readonly #onQuiet: 'end' | 'forget reasons';

  /**
   * @param onEnd called when failures are over
   * @param onQuiet whether failures are over when there is none for a while. If not, only {@link succeeded} ends them, but their
   * reasons are told again when they come back
   */
  constructor(onEnd: (total: FailureTotal<Subject>) => void, onQuiet: 'end' | 'forget reasons') {
    this.#onEnd = onEnd;
    this.#onQuiet = onQuiet;
  }

  /** Whether there are failures that are not over. */
  get isAny(): boolean {
    return this.#ongoing.size > 0;
  }

  /**
   * Counts a failure.
   *
   * @param key the same for failures that end together
   * @param quietMs how long it is quiet before that means something, in milliseconds
   * @returns whether the reason is to be told
   */
  failed(key: string, subject: Subject, reason: string, quietMs: number): boolean {
    const nowMs = performance.now();
    const ongoing = this.#ongoing.get(key) ?? this.#begin(key, subject, nowMs);
    ongoing.count += 1;
    ongoing.lastMs = nowMs;
    clearTimeout(ongoing.quiet);
    ongoing.quiet = setTimeout(() => this.#quiet(key, ongoing), Math.min(quietMs, timerMaxMs)).unref();
    if (ongoing.reasons.has(reason) || ongoing.reasons.size === reasonsMax) return false;
    ongoing.reasons.add(reason);
    return true;
  }

  /**
   * Ends failures, unless the last one has only just been: while some succeed and others fail, nothing is over.
   *
   * @param settledMs how long ago the last failure must have been, in milliseconds
   */
  succeeded(key: string, settledMs: number): void {
    const ongoing = this.#ongoing.get(key);
    if (ongoing !== undefined && performance.now() - ongoing.lastMs >= settledMs) this.#end(key, ongoing);
  }

  #begin(key: string, subject: Subject, nowMs: number): Ongoing<Subject> {
    const begun: Ongoing<Subject> = {
      subject,
      startedMs: nowMs,
      lastMs: nowMs,
      count: 0,
      reasons: new Set(),
      quiet: undefined,
    };
    this.#ongoing.set(key, begun);
    return begun;
  }

  #quiet(key: string, ongoing: Ongoing<Subject>): void {
    if (this.#onQuiet === 'end') this.#end(key, ongoing);
    else ongoing.reasons.clear();
  }

  #end(key: string, { subject, count, startedMs, lastMs, quiet }: Ongoing<Subject>): void {
    clearTimeout(quiet);
    this.#ongoing.delete(key);
    this.#onEnd({ subject, count, durationMs: Math.round(lastMs - startedMs) });
  }
}
