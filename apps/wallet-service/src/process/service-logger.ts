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

const causesMax = 8;
/** Of a longer text, so many characters of its beginning, where a stack says what happened, and of its end, where it says where. */
const beginningMax = 1_000;
const endMax = 3_000;

/**
 * The stacks of an error and of its causes, for the log: at most eight, and of each about 4,000 characters at most.
 *
 * Only stacks: the other fields of a database's errors can hold the values of a row.
 */
export function errorStack(error: unknown): string {
  return causesOf(error)
    .map(({ stack, message }) => bounded(stack ?? message))
    .join('\ncaused by: ');
}

/** What an error and its causes say, bounded as their stacks are; a cause that is quoted already is not repeated. */
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
