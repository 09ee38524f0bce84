import { type FileHandle, open, stat } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';

import { ProblemError } from '../problem/problem-error.js';
import { type ChainEnd, type Digest, chainDigest, chainStart, endOfLine, nextLine } from './hash-chain.js';
import type { AuditSettings } from './security-settings.js';

/** An attempt to change something, and its outcome. */
export interface AuditEntry {
  readonly time: Date;
  readonly requestId: string;
  /** The name of the principal; `null` when the request was refused before its authentication. */
  readonly principal: string | null;
  readonly address: string;
  /** The method and the path of the request. */
  readonly request: string;
  readonly idempotencyKey: string | null;
  /** The validated input; `null` when the request was refused before its validation. */
  readonly input: unknown;
  readonly status: number;
  /** The code of the problem; `null` on success. */
  readonly code: string | null;
  /** Whether the answer repeats the one to an earlier request with the same key. */
  readonly replayed: boolean;
}

/** Ends a request whose line cannot be written before it is executed, with the code `audit-unavailable`. */
export class AuditUnavailableError extends ProblemError {
  constructor() {
    super('audit-unavailable', 'The audit log cannot be written');
  }
}

/** The longest part of a client's text in a line, in characters. */
const charactersMax = 4_096;
/** The size of the part of a file that always contains its last line, in bytes: a line has few texts of clients. */
const tailBytes = 128 * 1_024;
/** The maximum number of lines that wait for a file that cannot be written. */
const waitingMax = 10_000;
const retryMs = 1_000;
/** The interval between checks for a renamed file, in milliseconds: a check for each line would cost more than its write. */
const followIntervalMsDefault = 100;
/** The time for which a request waits for its line, in milliseconds; after it, the file counts as one that cannot be written. */
const writeTimeoutMs = 5_000;

interface Waiting {
  readonly entry: AuditEntry;
  readonly written: () => void;
}

/**
 * Appends a line of JSON to a file for each attempt to change something.
 *
 * With a hash chain, each line has the hash of the line before it and its own, so that {@link checkChain} finds a line that was changed,
 * removed, added or moved; with a key, the chain cannot be recomputed without that key. Lines that are cut off at the end show by
 * {@link end}, if the application logs it when a process starts and stops.
 *
 * A file belongs to one process. After a rename, the next line begins another file, which continues the chain.
 */
export class AuditLog {
  readonly #settings: AuditSettings;
  /** The digest of the chain; `undefined` without one. */
  readonly #digest: Digest | undefined;
  readonly #onFailure: (error: unknown) => void;
  #file: FileHandle;
  #inode: number;
  #size: number;
  #end: ChainEnd;
  #waiting: Waiting[] = [];
  #writing: Promise<void> | undefined;
  #failure: unknown;
  /** The time of the next check for a renamed file. */
  #followMs = -Infinity;
  #followIntervalMs = followIntervalMsDefault;
  /** Whether a failed attempt may have written a part of its lines. */
  #isTorn = false;
  /** The attempts whose lines are not complete. */
  readonly #running = new Set<Promise<void>>();
  readonly #closing = new AbortController();

  private constructor(
    settings: AuditSettings,
    digest: Digest | undefined,
    onFailure: (error: unknown) => void,
    opened: Opened,
  ) {
    this.#settings = settings;
    this.#digest = digest;
    this.#onFailure = onFailure;
    this.#file = opened.file;
    this.#inode = opened.inode;
    this.#size = opened.size;
    this.#end = opened.end ?? chainStart;
  }

  /**
   * Opens a file, or creates it, and continues its chain.
   *
   * @param onFailure called with each new reason why a line cannot be written; the write is retried every second
   * @param followIntervalMs the interval between checks for a renamed or changed file, in milliseconds. Default 100
   * @throws the system's error when the file cannot be opened, or the key cannot be read; an error when the key has less than 16 bytes
   */
  static async open(
    settings: AuditSettings,
    onFailure: (error: unknown) => void,
    followIntervalMs: number = followIntervalMsDefault,
  ): Promise<AuditLog> {
    const key = await chainDigest(settings.hashKeyFile);
    const digest = settings.hashChain ? key : undefined;
    const log = new AuditLog(settings, digest, onFailure, await openFile(settings.file));
    log.#followIntervalMs = followIntervalMs;
    return log;
  }

  /** The number and the hash of the last line; the hash is zero without a chain. */
  get end(): ChainEnd {
    return this.#end;
  }

  /** Whether lines can be written. If not, {@link record} refuses attempts. */
  get isWritable(): boolean {
    return this.#failure === undefined && this.#waiting.length < waitingMax;
  }

  /**
   * Makes an attempt, and writes the line that it returns. {@link close} waits for both.
   *
   * @throws AuditUnavailableError `audit-unavailable`, before the attempt, when lines cannot be written
   */
  async record(attempt: () => Promise<AuditEntry>): Promise<void> {
    if (!this.isWritable) throw new AuditUnavailableError();
    const recorded = attempt().then((entry) => this.write(entry));
    this.#running.add(recorded);
    try {
      await recorded;
    } finally {
      this.#running.delete(recorded);
    }
  }

  /** Writes a line. Resolves when it is written, or when the file cannot be written: then the line waits until it can. */
  write(entry: AuditEntry): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({ entry, written: resolve });
    this.#writing ??= this.#writeAll();
    if (this.#failure !== undefined) resolve();
    return promise;
  }

  /** Waits for running attempts, tries once to write the lines that wait, and closes the file. */
  async close(): Promise<void> {
    // The server does not wait for requests whose clients have left.
    await Promise.allSettled(this.#running);
    this.#closing.abort();
    await this.#writing;
    const lost = this.#waiting.length;
    if (lost > 0) this.#onFailure(new Error(`${lost} lines were lost, because the process stops`));
    await this.#file.close();
  }

  /** Writes lines until none waits; those that arrive during a write are written together. */
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
    // Synchronously after the last check: a later entry must begin another loop.
    this.#writing = undefined;
  }

  /** Reports each reason once, and ends the wait of all requests. */
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
      const [line, next] = nextLine(shortened(entry), end, this.#digest);
      text += line;
      end = next;
    }
    const bytes = Buffer.from(text);
    // Removes the partial write of a failed attempt, so that no line occurs twice.
    if (this.#isTorn) await this.#file.truncate(this.#size);
    this.#isTorn = true;
    const { bytesWritten } = await this.#file.write(bytes);
    if (bytesWritten < bytes.byteLength) await this.#file.writeFile(bytes.subarray(bytesWritten));
    if (this.#settings.sync) await this.#file.datasync();
    this.#isTorn = false;
    this.#size += bytes.byteLength;
    this.#end = end;
  }

  /**
   * Opens the file again if it was renamed.
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
    // The lines of a failed attempt are written again, to the other file.
    if (this.#isTorn) await this.#file.truncate(this.#size);
    const opened = await openFile(this.#settings.file);
    await this.#file.close();
    this.#file = opened.file;
    this.#inode = opened.inode;
    this.#size = opened.size;
    this.#isTorn = false;
  }
}

interface Opened {
  readonly file: FileHandle;
  readonly inode: number;
  readonly size: number;
  /** The end of its chain; `undefined` for an empty file. */
  readonly end: ChainEnd | undefined;
}

/** Opens a file for appending. An incomplete last line, which a crash leaves, stays and gets its line feed. */
async function openFile(path: string): Promise<Opened> {
  const file = await open(path, 'a+', 0o600);
  try {
    const { size, ino: inode } = await file.stat();
    const tail = Buffer.alloc(Math.min(size, tailBytes));
    await file.read(tail, 0, tail.byteLength, size - tail.byteLength);
    const lines = tail.toString().split('\n');
    const isTorn = lines.at(-1) !== '';
    if (isTorn && size > 0) await file.writeFile('\n');
    const end = lines.toReversed().flatMap((line) => endOfLine(line) ?? [])[0];
    return { file, inode, size: size + (isTorn && size > 0 ? 1 : 0), end };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** The fields of an entry, with each text of the client cut to its limit. */
function shortened({ input, request, principal, idempotencyKey, ...others }: AuditEntry): object {
  const json = jsonOf(input);
  return {
    ...others,
    principal: principal && cut(principal),
    request: cut(request),
    idempotencyKey: idempotencyKey && cut(idempotencyKey),
    input: json.length <= charactersMax ? (JSON.parse(json) as unknown) : cut(json),
  };
}

function bigintAsText(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? `${value}` : value;
}

/** A body as JSON, whatever values a schema has made of it: what has no JSON must not keep the lines of others from being written. */
function jsonOf(input: unknown): string {
  try {
    return JSON.stringify(input, bigintAsText) ?? 'null';
  } catch (error) {
    return JSON.stringify(`not recorded: ${String(error)}`);
  }
}

function cut(text: string): string {
  return text.length <= charactersMax ? text : `${text.slice(0, charactersMax)}…`;
}
