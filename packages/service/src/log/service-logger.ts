import { type Logger, type LoggerOptions, pino } from 'pino';

/** Lines of this pino level (warn) and above are written at once. */
const urgentLevel = 40;
/** Lines of lower levels are collected until they have this many characters. */
const lengthTogether = 4_096;
/** How long a line may be delayed, in milliseconds. */
const latenessMs = 1_000;
/** How many bytes may wait for a slow reader of standard error. Further lines are dropped and counted. */
const waitingMax = 1_048_576;
/** The message of the line that says how many lines are missing. */
export const linesDropped = 'log lines were dropped here, because standard error was not read';
/** How long the exiting process waits for these bytes to be read, in milliseconds. */
const endMs = 1_000;

/** The process to whose standard error lines are written. */
interface LogHost {
  readonly stderr: Pick<NodeJS.WriteStream, 'write' | 'on' | 'writableLength'>;
  readonly on: (event: 'exit', listener: () => void) => unknown;
}

/**
 * Makes the log of the process, on standard error.
 *
 * Writing a line takes a twentieth of a request's processor time, so lines about requests are written in batches.
 * Warnings and errors are written at once, together with all earlier lines. Everything is written when the process
 * exits; a process that is killed loses the last second. If nobody reads the log, up to 1 MiB of lines are buffered,
 * and nothing waits for them.
 *
 * @param options how lines are made. Default: as pino makes them
 */
export function serviceLogger(host: LogHost, level: string, options: LoggerOptions = {}): Logger {
  let lines = '';
  let dropped = 0;
  let timer: NodeJS.Timeout | undefined;
  const flush = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (lines !== '') host.stderr.write(lines);
    lines = '';
  };
  const output = {
    // Makes pino set `lastLevel` before each line.
    [Symbol.for('pino.metadata')]: true,
    lastLevel: 0,
    write(line: string): void {
      if (host.stderr.writableLength > waitingMax) {
        dropped += 1;
        return;
      }
      lines += line;
      if (this.lastLevel >= urgentLevel || lines.length >= lengthTogether) flush();
      else timer ??= setTimeout(flush, latenessMs).unref();
    },
  };
  const logger = pino({ ...options, level }, output);
  // The service must survive when nobody reads its log any more.
  host.stderr.on('error', () => undefined);
  host.stderr.on('drain', () => {
    if (dropped === 0) return;
    logger.warn({ dropped }, linesDropped);
    dropped = 0;
  });
  host.on('exit', flush);
  return logger;
}

/** Resolves when standard error has taken all logged lines, or after a second. */
export function logTaken({ stderr }: LogHost): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, endMs);
    stderr.write('', () => resolve());
  });
}
