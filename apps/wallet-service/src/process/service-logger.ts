import { type Logger, pino } from 'pino';

/** Lines of this pino level (warn) and above are written at once. */
const urgentLevel = 40;
/** Lines of lower levels are collected until they have this many characters. */
const lengthTogether = 4_096;
/** How long a line may be delayed, in milliseconds. */
const latenessMs = 1_000;
/** How many bytes may wait for a slow reader of standard error. Further lines are dropped and counted. */
const waitingMax = 1_048_576;
/** How long the exiting process waits for these bytes to be read, in milliseconds. */
const endMs = 1_000;

/**
 * Makes the log of the process, on standard error.
 *
 * Writing a line takes a twentieth of a request's processor time, so lines about requests are written in batches.
 * Warnings and errors are written at once, together with all earlier lines. Everything is written when the process
 * exits; a process that is killed loses the last second. If nobody reads the log, up to 1 MiB of lines are buffered,
 * and nothing waits for them.
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
    // Makes pino set `lastLevel` before each line.
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
  // The service must survive when nobody reads its log any more.
  process.stderr.on('error', () => undefined);
  process.stderr.on('drain', () => {
    if (dropped === 0) return;
    logger.warn({ dropped }, 'log lines were dropped here, because standard error was not read');
    dropped = 0;
  });
  process.on('exit', flush);
  return logger;
}

/** Resolves when standard error has taken all logged lines, or after a second. */
export function logTaken(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, endMs);
    process.stderr.write('', () => resolve());
  });
}

const causesMax = 8;
/**
 * Longer texts are cut to this many characters of their beginning, where a stack says what happened, and of their end,
 * where it says where.
 */
const beginningMax = 1_000;
const endMax = 3_000;

/**
 * Formats the stacks of an error and its causes for the log: at most eight, each up to about 4,000 characters.
 *
 * Only stacks are logged, because other fields of a database's error may contain the values of a row.
 */
export function errorStack(error: unknown): string {
  return causesOf(error)
    .map(({ stack, message }) => bounded(stack ?? message))
    .join('\ncaused by: ');
}

/** Joins the messages of an error and its causes, limited like the stacks. Skips a cause that is already quoted. */
export function errorReason(error: unknown): string {
  return causesOf(error)
    .map(({ message, name }) => bounded(message || name))
    .reduce((said, text) => (said.includes(text) ? said : `${said}: ${text}`));
}

function causesOf(error: unknown): readonly Error[] {
  const chain: Error[] = [];
  for (let link = error; link instanceof Error && chain.length < causesMax; link = link.cause)
    chain.push(link);
  return chain.length === 0 ? [new Error(String(error))] : chain;
}

function bounded(text: string): string {
  if (text.length <= beginningMax + endMax) return text;
  return `${text.slice(0, beginningMax)} … ${text.slice(-endMax)}`.toWellFormed();
}
