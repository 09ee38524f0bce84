import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { styleText } from 'node:util';

/** What a process reads from and writes to, and whether people are at the other end. */
interface Streams {
  /** Default: nobody can be asked. */
  readonly stdin?: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  readonly stdout: NodeJS.WritableStream & { readonly isTTY?: boolean };
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean };
}

/** How results are written: for people or for programs. */
export type OutputFormat = 'table' | 'json';

const hidden = '******';

/** Writes results and progress, without the secrets that it was told. */
export class Terminal {
  readonly #streams: Streams;
  readonly #secrets = new Set<string>();
  readonly #ended = new AbortController();
  #unwritten: unknown;

  constructor(streams: Streams) {
    this.#streams = streams;
    streams.stdout.on('error', (error: NodeJS.ErrnoException) => {
      // A reader that closes the pipe, such as head, is no failure, but a full disk is one.
      if (error.code !== 'EPIPE' && error.code !== 'ECONNRESET') this.#unwritten ??= error;
      this.#ended.abort();
    });
    // Nobody can be told any more. Without a listener, the process would end in the middle of a change.
    streams.stderr.on('error', () => undefined);
  }

  /** Aborted when nobody reads the output any more, or it cannot be written. */
  get readerGone(): AbortSignal {
    return this.#ended.signal;
  }

  /** Whether a person can be asked. */
  get canAsk(): boolean {
    return this.#streams.stdin?.isTTY === true && this.#streams.stderr.isTTY === true;
  }

  /** The format when nobody chooses one: a table if a person reads the output. */
  get defaultFormat(): OutputFormat {
    return this.#streams.stdout.isTTY === true ? 'table' : 'json';
  }

  /** Keeps a text out of everything that is written from now on. */
  hide(secret: string): void {
    if (secret === '') return;
    for (const form of [secret, encodeURIComponent(secret), JSON.stringify(secret).slice(1, -1)])
      this.#secrets.add(form);
  }

  /** Writes a result. On a terminal, it keeps only those control characters that break lines, indent, or are the colours of {@link style}. */
  write(text: string): void {
    const clean = this.#without(text);
    this.#streams.stdout.write(`${this.#streams.stdout.isTTY === true ? harmless(clean) : clean}\n`);
  }

  /** Writes a result as JSON. Secrets are looked for in its strings alone, so that it stays JSON whatever they are. */
  writeJson(value: unknown, { isOneLine = false } = {}): void {
    const withoutSecrets = (_key: string, each: unknown): unknown =>
      typeof each === 'string' ? this.#without(each) : each;
    this.#streams.stdout.write(
      `${asciiControls(JSON.stringify(value, withoutSecrets, isOneLine ? undefined : 2))}\n`,
    );
  }

  /**
   * Writes data as JSON, by default on one line: unlike everything else, it is not searched for secrets. Resolves when the reader takes
   * more, or is gone.
   */
  async writeExactly(value: unknown, indent?: number): Promise<void> {
    const { stdout } = this.#streams;
    if (
      this.#ended.signal.aborted ||
      stdout.write(`${asciiControls(JSON.stringify(value, undefined, indent))}\n`)
    )
      return;
    await once(stdout, 'drain', { signal: this.#ended.signal }).catch(() => undefined);
  }

  /**
   * Resolves when everything is written, or nobody reads it any more.
   *
   * @returns why a part of the results could not be written; `undefined` when that is not the case
   */
  async flush(): Promise<unknown> {
    const { stdout, stderr } = this.#streams;
    // A stream that has failed may never call back.
    const streams = this.#ended.signal.aborted ? [stderr] : [stdout, stderr];
    await Promise.all(streams.map((stream) => new Promise((resolve) => stream.write('', resolve))));
    // A stream calls back before it tells of the error.
    await nextTurn();
    return this.#unwritten;
  }

  /** Asks a person a question to be answered with yes; everything else, and the end of the input, means no. */
  async confirm(question: string): Promise<boolean> {
    const { stdin, stderr } = this.#streams;
    if (stdin === undefined) return false;
    const lines = createInterface({ input: stdin, output: stderr });
    try {
      const closed = once(lines, 'close').then(() => '');
      // Ctrl-C and Ctrl-D reject it.
      const asked = lines.question(`${this.#lines(question)} [y/N] `).catch(() => '');
      const answer = await Promise.race([asked, closed]);
      return /^y(es)?$/i.test(answer.trim());
    } finally {
      lines.close();
    }
  }

  /** Tells a person what is being done; programs that read the errors are not bothered with it. */
  progress(text: string): void {
    if (this.#streams.stderr.isTTY === true) this.#streams.stderr.write(`${this.#lines(text)}\n`);
  }

  /** Writes why a command failed. */
  fail(text: string): void {
    this.#streams.stderr.write(`${this.#lines(text)}\n`);
  }

  /** Colours a text if the output shows colours. */
  style(style: 'bold' | 'red' | 'yellow' | 'green' | 'dim', text: string): string {
    return this.#streams.stdout.isTTY === true ? styleText(style, text, { stream: process.stdout }) : text;
  }

  /** A message without secrets, and without characters that could change what a terminal shows: it may quote anything. */
  #lines(text: string): string {
    return this.#without(text).split('\n').map(plain).join('\n');
  }

  #without(text: string): string {
    // Also what was never parsed, such as a URL in a message of a library.
    let clean = text.replaceAll(/(:\/\/[^\s/:@"']*:)[^\s@/"']+@/g, `$1${hidden}@`);
    // The longest first: one secret may contain another.
    for (const secret of [...this.#secrets].toSorted((one, other) => other.length - one.length))
      clean = clean.replaceAll(secret, hidden);
    return clean;
  }
}

/** Lines of columns for people: as wide as their widest cell. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [head.map((each) => plain(each).toUpperCase()), ...rows.map((row) => row.map(plain))];
  const widths = head.map((_name, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** A text as one line without control characters, which could change what a terminal shows. */
export function plain(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, ' ');
}

/** What {@link Terminal.write} keeps, or a character that could change what a terminal shows. */
const keptOrHarmful = new RegExp(String.raw`([\n\t]|${'\u001b'}\[\d{1,2}m)|[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]`, 'gu');

function harmless(text: string): string {
  return text.replaceAll(keptOrHarmful, (_all, kept: string | undefined) => kept ?? ' ');
}

/** JSON with escapes in place of the characters that could change what a terminal shows, and which JSON allows. It means the same. */
function asciiControls(json: string): string {
  return json.replaceAll(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) =>
    character.replaceAll(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  );
}

/** Names and values of one thing for people, one below the other; those without a value are left out. */
export function fieldLines(fields: Readonly<Record<string, unknown>>): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  const width = Math.max(0, ...given.map(([name]) => name.length));
  return given.map(([name, value]) => `${name.padEnd(width)}  ${cellOf(value)}`).join('\n');
}

/** A value for people, on one line. */
export function cellOf(value: unknown): string {
  if (value === undefined || value === null) return '-';
  if (value instanceof Date) return value.toISOString();
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'bigint') return String(value);
  return plain(typeof value === 'string' ? value : JSON.stringify(value));
}
