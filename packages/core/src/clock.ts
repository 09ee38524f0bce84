/** The port through which the framework and its users read the time and wait. */
export interface Clock {
  /** The current instant, with millisecond precision. */
  now(): Date;
  /** Resolves after a duration in milliseconds. */
  sleep(durationMs: number): Promise<void>;
}

/** The computer's own clock. */
export const systemClock: Clock = {
  now: () => new Date(),
  sleep: (durationMs) => new Promise((resolve) => setTimeout(resolve, durationMs)),
};
