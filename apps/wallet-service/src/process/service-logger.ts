import { type Logger, destination, pino } from 'pino';

/** From which of pino's levels on a line is written at once: warn. */
const urgentLevel = 40;
/** How many bytes of other lines are written together. */
const bytesTogether = 4_096;
/** How late they are written at most, in milliseconds. */
const latenessMs = 1_000;

/**
 * Makes the log of the process, on standard error.
 *
 * Writing a line takes a twentieth of a request's processor time, so lines about requests are written together. Warnings
 * and errors are written at once, with all lines before them, and so is everything when the process exits; a process that
 * is killed loses the last second.
 */
export function serviceLogger(level: string): Logger {
  const output = destination({
    dest: 2,
    sync: false,
    minLength: bytesTogether,
    periodicFlush: latenessMs,
  });
  const hooks = {
    logMethod(this: Logger, args: Parameters<Logger['info']>, write: Logger['info'], levelNumber: number) {
      write.apply(this, args);
      if (levelNumber >= urgentLevel) output.flushSync();
    },
  };
  return pino({ name: 'wallet-service', level, hooks }, output);
}
