import { setTimeout as pause } from 'node:timers/promises';

const pollIntervalMs = 10;

/** Waits for conditions no longer than a fixed point in time, so that a chain of waits has one limit. */
export class Deadline {
  readonly timeoutMs: number;
  readonly #endsAtMs: number;

  private constructor(timeoutMs: number) {
    this.timeoutMs = timeoutMs;
    this.#endsAtMs = performance.now() + timeoutMs;
  }

  /** A deadline that passes `timeoutMs` milliseconds from now. */
  static after(timeoutMs: number): Deadline {
    return new Deadline(timeoutMs);
  }

  /** Whether no time is left. */
  get passed(): boolean {
    return performance.now() >= this.#endsAtMs;
  }

  /** The time left in milliseconds, never below zero. */
  get remainingMs(): number {
    return Math.max(0, this.#endsAtMs - performance.now());
  }

  /**
   * The first value of `condition` that is not `undefined`, or `undefined` when the deadline passed before.
   * The condition is asked at least once.
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
 * Which fault it was: `directory-in-use` (another process runs its server there), `directory-unusable` (it may not be
 * read or written, or a part of it is missing or wrong), `initialisation-failed`, `start-failed`, `unsupported-platform`
 * (no server binaries, or not startable, on this machine).
 */
export type PostgresServerErrorCode =
  | 'directory-in-use'
  | 'directory-unusable'
  | 'initialisation-failed'
  | 'start-failed'
  | 'unsupported-platform';

/** Says why an embedded PostgreSQL server cannot be had, and what to do about it. */
export class PostgresServerError extends Error {
  override readonly name = 'PostgresServerError';
  readonly code: PostgresServerErrorCode;

  constructor(code: PostgresServerErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
