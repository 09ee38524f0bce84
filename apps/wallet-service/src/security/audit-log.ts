import { createHash, createHmac } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, open, readFile, stat } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';

/** The section `framework.security.audit`. */
export const auditSchema = z.strictObject({
  file: z.string().min(1, 'is empty'),
  hashChain: z.boolean().default(false),
  hashKeyFile: z.string().min(1, 'is empty').optional(),
  sync: z.boolean().default(false),
});
/** Where lines are written, and how they are protected. */
export type AuditSettings = z.output<typeof auditSchema>;

/** One attempt to write, and what became of it. */
export interface AuditEntry {
  readonly time: Date;
  readonly requestId: string;
  /** `null` when the request was refused before its sender was known. */
  readonly principal: string | null;
  readonly address: string;
  /** The method and the path of the request. */
  readonly request: string;
  readonly idempotencyKey: string | null;
  /** The validated input; `null` when it was refused before. */
  readonly input: unknown;
  readonly status: number;
  /** The code of the problem; `null` on success. */
  readonly code: string | null;
  /** Whether the answer was that of an earlier request with the same key. */
  readonly replayed: boolean;
}

/** The audit log cannot be written, so nothing is done that would belong there. */
export class AuditUnavailableError extends Error {
  override readonly name = 'AuditUnavailableError';
}

/** Where a chain ends. */
export interface ChainEnd {
  readonly sequence: number;
  readonly hash: string;
}

/** What the check of a file has found. */
export interface ChainCheck {
  readonly end: ChainEnd;
  /** What was changed, by the numbers of lines from 1. Empty when the chain is whole. */
  readonly faults: readonly string[];
}

const start: ChainEnd = { sequence: 0, hash: '0'.repeat(64) };
const hashPattern = /,"hash":"([\da-f]{64})"\}$/;
/** How much is kept of each text that a client can make long. */
const charactersMax = 4_096;
/** A line has few of these fields, so that the last line of a file is always within so many bytes of its end. */
const tailBytes = 128 * 1_024;
/** How many lines may wait for a file that cannot be written. */
const waitingMax = 10_000;
const retryMs = 1_000;
/** How often it is looked whether the file still has its name: for each line, that would cost more than to write it. */
const followIntervalMsDefault = 100;
/** How long a request waits for its line, in milliseconds; then the file counts as one that cannot be written. */
const writeTimeoutMs = 5_000;

interface Waiting {
  readonly entry: AuditEntry;
  readonly written: () => void;
}

/**
 * Appends a line of JSON for each attempt to write. With a hash chain, each line has the hash of the line before it and its own, so
 * that a line that is changed, removed, added or moved is found; with a key, a chain cannot be made anew without that key either. What
 * is cut off at the end shows in the number and hash of the last line, which are logged when a process starts and stops.
 *
 * A file belongs to one process. It may be moved away; another one is then begun, which continues the chain.
 */
export class AuditLog {
  readonly #settings: AuditSettings;
  readonly #digest: Digest;
  readonly #onFailure: (error: unknown) => void;
  #file: FileHandle;
  #inode: number;
  #size: number;
  #end: ChainEnd;
  #waiting: Waiting[] = [];
  #writing: Promise<void> | undefined;
  #failure: unknown;
  /** When it is time to look whether the file still has its name. */
  #followMs = -Infinity;
  #followIntervalMs = followIntervalMsDefault;
  /** Whether a failed attempt may have written a part of its lines. */
  #isTorn = false;
  /** Attempts whose lines are still to come. */
  readonly #running = new Set<Promise<void>>();
  readonly #closing = new AbortController();

  private constructor(
    settings: AuditSettings,
    digest: Digest,
    onFailure: (error: unknown) => void,
    opened: Opened,
  ) {
    this.#settings = settings;
    this.#digest = digest;
    this.#onFailure = onFailure;
    this.#file = opened.file;
    this.#inode = opened.inode;
    this.#size = opened.size;
    this.#end = opened.end ?? start;
  }

  /**
   * Opens a file, or creates it, and continues its chain.
   *
   * @param onFailure called with each new reason why a line cannot be written; it is tried again every second
   * @param followIntervalMs how often it is looked whether the file was moved away, or changed by something else. Default 100
   * @throws the system's error when the file cannot be opened, or the key cannot be read
   */
  static async open(
    settings: AuditSettings,
    onFailure: (error: unknown) => void,
    followIntervalMs: number = followIntervalMsDefault,
  ): Promise<AuditLog> {
    const digest = await digestOf(settings.hashKeyFile);
    const log = new AuditLog(settings, digest, onFailure, await openFile(settings.file));
    log.#followIntervalMs = followIntervalMs;
    return log;
  }

  /** The number and the hash of the last line; the hash is zero without a chain. */
  get end(): ChainEnd {
    return this.#end;
  }

  /** Whether lines can be written. If not, nothing that would need a line may be done. */
  get isWritable(): boolean {
    return this.#failure === undefined && this.#waiting.length < waitingMax;
  }

  /**
   * Makes an attempt, and writes the line that it results in. Closing waits for it.
   *
   * @throws AuditUnavailableError before the attempt, when the line could not be written
   */
  async record(attempt: () => Promise<AuditEntry>): Promise<void> {
    if (!this.isWritable) throw new AuditUnavailableError('The audit log cannot be written');
    const recorded = attempt().then((entry) => this.write(entry));
    this.#running.add(recorded);
    try {
      await recorded;
    } finally {
      this.#running.delete(recorded);
    }
  }

  /** Resolves when the line is written, or must wait until the file can be written again. */
  write(entry: AuditEntry): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({ entry, written: resolve });
    this.#writing ??= this.#writeAll();
    if (this.#failure !== undefined) resolve();
    return promise;
  }

  /** Waits for attempts that are being made, writes what waits, trying once, and closes the file. */
  async close(): Promise<void> {
    // Their clients may have left, so that nobody else waits for them.
    await Promise.allSettled(this.#running);
    this.#closing.abort();
    await this.#writing;
    const lost = this.#waiting.length;
    if (lost > 0) this.#onFailure(new Error(`${lost} lines were lost, because the process stops`));
    await this.#file.close();
  }

  /** Writes lines until none waits: those that come meanwhile are written together. */
  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = [...this.#waiting];
      const isLast = this.#closing.signal.aborted;
      const late = setTimeout(() => {
        this.#failed(new Error(`${this.#settings.file} has not taken a line for ${writeTimeoutMs} ms`));
      }, writeTimeoutMs);
      try {
        await this.#writeBatch(batch);
        this.#failure = undefined;
        this.#waiting = this.#waiting.slice(batch.length);
        for (const { written } of batch) written();
      } catch (error) {
        this.#failed(error);
        if (isLast) break;
        await delay(retryMs, undefined, { ref: false, signal: this.#closing.signal }).catch(() => undefined);
      } finally {
        clearTimeout(late);
      }
    }
    // At once: an entry that comes after the last look at those that wait must begin anew.
    this.#writing = undefined;
  }

  /** Reports a reason once, and lets nobody wait for it to end. */
  #failed(error: unknown): void {
    if (String(error) !== String(this.#failure)) this.#onFailure(error);
    this.#failure = error;
    for (const { written } of this.#waiting) written();
  }

  async #writeBatch(batch: readonly Waiting[]): Promise<void> {
    const nowMs = performance.now();
    if (this.#isTorn || this.#failure !== undefined || nowMs >= this.#followMs) {
      await this.#follow();
      this.#followMs = nowMs + this.#followIntervalMs;
    }
    let end = this.#end;
    let text = '';
    for (const { entry } of batch) {
      const [line, next] = this.#line(entry, end);
      text += line;
      end = next;
    }
    const bytes = Buffer.from(text);
    // What a failed attempt has written is removed, so that no line occurs twice.
    if (this.#isTorn) await this.#file.truncate(this.#size);
    this.#isTorn = true;
    const { bytesWritten } = await this.#file.write(bytes);
    if (bytesWritten < bytes.byteLength) await this.#file.writeFile(bytes.subarray(bytesWritten));
    if (this.#settings.sync) await this.#file.datasync();
    this.#isTorn = false;
    this.#size += bytes.byteLength;
    this.#end = end;
  }

  #line(entry: AuditEntry, { sequence, hash: previous }: ChainEnd): readonly [string, ChainEnd] {
    const next = sequence + 1;
    const { input, request, principal, idempotencyKey, ...others } = entry;
    const fields = {
      sequence: next,
      ...others,
      principal: principal && shortened(principal),
      request: shortened(request),
      idempotencyKey: idempotencyKey && shortened(idempotencyKey),
      input: shortInput(input),
    };
    if (!this.#settings.hashChain) return [`${lineOf(fields)}\n`, { sequence: next, hash: previous }];
    const text = lineOf({ ...fields, previous });
    const hash = this.#digest(text);
    return [`${text.slice(0, -1)},"hash":"${hash}"}\n`, { sequence: next, hash }];
  }

  /**
   * Opens the file again if another one, or none, has its name now.
   *
   * @throws Error when something else has written to it
   */
  async #follow(): Promise<void> {
    const found = await stat(this.#settings.file).catch(() => undefined);
    if (found?.ino === this.#inode) {
      if (found.size !== this.#size && !this.#isTorn)
        throw new Error(
          `${this.#settings.file} was changed by something else: move it away, and give each process a file of its own`,
        );
      return;
    }
    // What a failed attempt has written is written again, to the other file.
    if (this.#isTorn) await this.#file.truncate(this.#size);
    const opened = await openFile(this.#settings.file);
    await this.#file.close();
    this.#file = opened.file;
    this.#inode = opened.inode;
    this.#size = opened.size;
    this.#isTorn = false;
  }
}

type Digest = (text: string) => string;

async function digestOf(keyFile: string | undefined): Promise<Digest> {
  if (keyFile === undefined) return (text) => createHash('sha256').update(text).digest('hex');
  const key = await readFile(keyFile);
  return (text) => createHmac('sha256', key).update(text).digest('hex');
}

interface Opened {
  readonly file: FileHandle;
  readonly inode: number;
  readonly size: number;
  /** Where its chain ends; `undefined` when it is empty. */
  readonly end: ChainEnd | undefined;
}

/** Opens a file for appending. A last line that is not complete, because a process died, stays and is ended. */
async function openFile(path: string): Promise<Opened> {
  const file = await open(path, 'a+', 0o600);
  try {
    const { size, ino: inode } = await file.stat();
    const tail = Buffer.alloc(Math.min(size, tailBytes));
    await file.read(tail, 0, tail.byteLength, size - tail.byteLength);
    const lines = tail.toString().split('\n');
    const isTorn = lines.at(-1) !== '';
    if (isTorn && size > 0) await file.writeFile('\n');
    const end = lines.toReversed().flatMap((line) => endOf(line) ?? [])[0];
    return { file, inode, size: size + (isTorn && size > 0 ? 1 : 0), end };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** The number and the hash of a line; `undefined` when it is not a complete one. */
function endOf(line: string): ChainEnd | undefined {
  try {
    const { sequence, hash = start.hash } = JSON.parse(line) as Partial<ChainEnd>;
    return typeof sequence === 'number' ? { sequence, hash } : undefined;
  } catch {
    return undefined;
  }
}

/** The JSON of an object in one line for every reader, whatever characters a client has sent: none controls a terminal either. */
function lineOf(fields: object): string {
  return JSON.stringify(fields).replaceAll(
    /[\p{Cc}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

function shortened(text: string): string {
  return text.length <= charactersMax ? text : `${text.slice(0, charactersMax)}…`;
}

function shortInput(input: unknown): unknown {
  const json = JSON.stringify(input) ?? 'null';
  return json.length <= charactersMax ? input : shortened(json);
}

/**
 * Checks a file with a hash chain.
 *
 * @param keyFile the file of its key, if it has one
 * @param before where the chain of the file before it ends; default: it is the first file
 * @throws the system's error when a file cannot be read
 */
export async function checkChain(
  path: string,
  {
    keyFile,
    before = start,
  }: { readonly keyFile?: string | undefined; readonly before?: ChainEnd | undefined } = {},
): Promise<ChainCheck> {
  const digest = await digestOf(keyFile);
  const faults: string[] = [];
  let [end, number] = [before, 0];
  for await (const line of linesOf(path)) {
    number++;
    const next = endOf(line);
    const [suffix = '', hash = ''] = hashPattern.exec(line) ?? [];
    const text = `${line.slice(0, -suffix.length)}}`;
    if (next === undefined) faults.push(`line ${number} is not complete`);
    else if (digest(text) !== hash) faults.push(`line ${number} was changed, or has another key`);
    else if (next.sequence !== end.sequence + 1 || !text.includes(`"previous":"${end.hash}"}`))
      faults.push(`line ${number} does not follow the line before it`);
    if (next !== undefined) end = next;
  }
  return { end, faults };
}

/** Unlike those of `node:readline`, lines end only at a line feed: a text in JSON may have other separators. */
async function* linesOf(path: string): AsyncGenerator<string> {
  let rest = '';
  for await (const part of createReadStream(path, 'utf8') as AsyncIterable<string>) {
    const lines = (rest + part).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
  if (rest !== '') yield rest;
}
