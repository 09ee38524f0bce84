import { type Logger, pino } from 'pino';

/** From which of pino's levels on a line is written at once: warn. */
const urgentLevel = 40;
/** How many characters of other lines are written together. */
const lengthTogether = 4_096;
/** How late they are written at most, in milliseconds. */
const latenessMs = 1_000;
/** How many bytes wait for somebody who reads standard error; lines beyond are dropped, and counted. */
const waitingMax = 1_048_576;
/** How long the end of the process waits for them, in milliseconds. */
const endMs = 1_000;

/**
 * Makes the log of the process, on standard error.
 *
 * Writing a line takes a twentieth of a request's processor time, so lines about requests are written together. Warnings
 * and errors are written at once, with all lines before them, and so is everything when the process exits; a process that
 * is killed loses the last second. Nobody waits for a log that is not read: the lines wait, up to 1 MiB of them.
 */
export function serviceLogger(level: string): Logger {
  let lines = '';
  let dropped = 0;
  let timer: NodeJS.Timeout | undefined;
  const flush = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (lines !== '') process.stderr.write(lines);
    lines = '';
  };
  const output = {
    // Asks pino for the level of each line.
    [Symbol.for('pino.metadata')]: true,
    lastLevel: 0,
    write(line: string): void {
      if (process.stderr.writableLength > waitingMax) {
        dropped += 1;
        return;
      }
      lines += line;
      if (this.lastLevel >= urgentLevel || lines.length >= lengthTogether) flush();
      else timer ??= setTimeout(flush, latenessMs).unref();
    },
  };
  const logger = pino({ name: 'wallet-service', level }, output);
  // The service goes on when nobody reads its log any more.
  process.stderr.on('error', () => undefined);
  process.stderr.on('drain', () => {
    if (dropped === 0) return;
    logger.warn({ dropped }, 'lines are missing here, because standard error was not read');
    dropped = 0;
  });
  process.on('exit', flush);
  return logger;
}

/** Resolves when what was logged has been taken from standard error, or after a second. */
export function logTaken(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, endMs);
    process.stderr.write('', () => resolve());
  });
}
