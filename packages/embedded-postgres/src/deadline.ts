import { setTimeout as pause } from 'node:timers/promises';

const pollIntervalMs = 10;

/** Waits for conditions up to a fixed point in time, so that a chain of waits has one common limit. */
export class Deadline {
  readonly timeoutMs: number;
  readonly #endsAtMs: number;

  private constructor(timeoutMs: number) {
    this.timeoutMs = timeoutMs;
    this.#endsAtMs = performance.now() + timeoutMs;
  }

  /** Creates a deadline that passes `timeoutMs` milliseconds from now. */
  static after(timeoutMs: number): Deadline {
    return new Deadline(timeoutMs);
  }

  /** Whether the deadline has passed. */
  get passed(): boolean {
    return performance.now() >= this.#endsAtMs;
  }

  /** The time left in milliseconds, never below zero. */
  get remainingMs(): number {
    return Math.max(0, this.#endsAtMs - performance.now());
  }

  /**
   * Returns the first value of `condition` that is not `undefined`, or `undefined` if the deadline passes first. Checks
   * the condition at least once.
   */
  async poll<T>(condition: () => Promise<T | undefined> | T | undefined): Promise<T | undefined> {
    for (;;) {
      const value = await condition();
      if (value !== undefined || this.passed) return value;
      await pause(pollIntervalMs);
    }
  }

  /** Whether `event` settles before the deadline. */
  async reaches(event: Promise<unknown>): Promise<boolean> {
    const cancel = new AbortController();
    const timer = pause(this.remainingMs, false, { signal: cancel.signal }).catch(() => false);
    const settled = event.then(
      () => true,
      () => true,
    );
    try {
      return await Promise.race([settled, timer]);
    } finally {
      cancel.abort();
    }
  }
}

/**
 * What went wrong: `directory-in-use` (another process runs its server there), `directory-unusable` (the folder cannot
 * be read or written, or a part of it is missing or wrong), `initialisation-failed`, `start-failed`,
 * `unsupported-platform` (there are no server binaries for this machine, or they do not run on it).
 */
export type PostgresServerErrorCode =
  | 'directory-in-use'
  | 'directory-unusable'
  | 'initialisation-failed'
  | 'start-failed'
  | 'unsupported-platform';

/** An embedded PostgreSQL server cannot be used; the message says why, and what to do. */
export class PostgresServerError extends Error {
  override readonly name = 'PostgresServerError';
  readonly code: PostgresServerErrorCode;

  constructor(code: PostgresServerErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
