import { styleText } from 'node:util';

/** What a process writes to: its two streams, and whether people read them. */
export interface Streams {
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

  constructor(streams: Streams) {
    this.#streams = streams;
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

  /** Writes a result. */
  write(text: string): void {
    this.#streams.stdout.write(`${this.#without(text)}\n`);
  }

  /** Writes a result as JSON. */
  writeJson(value: unknown): void {
    this.write(JSON.stringify(value, undefined, 2));
  }

  /** Tells a person what is being done; programs that read the errors are not bothered with it. */
  progress(text: string): void {
    if (this.#streams.stderr.isTTY === true) this.#streams.stderr.write(`${this.#without(text)}\n`);
  }

  /** Writes why a command failed. */
  fail(text: string): void {
    this.#streams.stderr.write(`${this.#without(text)}\n`);
  }

  /** Colours a text if the output shows colours. */
  style(style: 'bold' | 'red' | 'yellow' | 'green' | 'dim', text: string): string {
    return this.#streams.stdout.isTTY === true ? styleText(style, text, { stream: process.stdout }) : text;
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
  const all = [head.map((each) => each.toUpperCase()), ...rows];
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
