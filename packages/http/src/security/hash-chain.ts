import { createHash, createHmac } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';

/** The end of a chain: the number of its last line from 1, and that line's hash in hexadecimal. */
export interface ChainEnd {
  readonly sequence: number;
  readonly hash: string;
}

/** The end of an empty chain. */
export const chainStart: ChainEnd = { sequence: 0, hash: '0'.repeat(64) };

/** Computes the hash of a line. */
export type Digest = (text: string) => string;

/** A shorter key could be guessed, and an empty one is known to all. */
const keyBytesMin = 16;

/**
 * The digest of a chain: SHA-256, with a key HMAC-SHA-256.
 *
 * @throws Error when the key cannot be read, or has less than 16 bytes
 */
export async function chainDigest(keyFile: string | undefined): Promise<Digest> {
  if (keyFile === undefined) return (text) => createHash('sha256').update(text).digest('hex');
  const key = await readFile(keyFile);
  if (key.length < keyBytesMin)
    throw new Error(`the key in ${keyFile} has ${key.length} bytes, and needs at least ${keyBytesMin}`);
  return (text) => createHmac('sha256', key).update(text).digest('hex');
}

/**
 * Makes the line after the end of a chain, and the new end.
 *
 * @param digest the digest of the chain; `undefined` for lines that are only numbered
 */
export function nextLine(
  fields: object,
  { sequence, hash: previous }: ChainEnd,
  digest: Digest | undefined,
): readonly [line: string, end: ChainEnd] {
  const next = sequence + 1;
  if (digest === undefined)
    return [`${jsonLine({ sequence: next, ...fields })}\n`, { sequence: next, hash: previous }];
  const text = jsonLine({ sequence: next, ...fields, previous });
  const hash = digest(text);
  return [`${text.slice(0, -1)},"hash":"${hash}"}\n`, { sequence: next, hash }];
}

/** The JSON of an object as one line for every reader: escapes separators of lines, and characters that control terminals. */
function jsonLine(fields: object): string {
  return JSON.stringify(fields).replaceAll(
    /[\p{Cc}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** The number and the hash of a line; `undefined` when it is not a complete one. */
export function endOfLine(line: string): ChainEnd | undefined {
  try {
    const { sequence, hash = chainStart.hash } = JSON.parse(line) as Partial<ChainEnd>;
    return typeof sequence === 'number' ? { sequence, hash } : undefined;
  } catch {
    return undefined;
  }
}

/** The result of {@link checkChain}. */
export interface ChainCheck {
  readonly end: ChainEnd;
  /** The faults, by the numbers of lines from 1. Empty for an intact chain. */
  readonly faults: readonly string[];
}

const hashPattern = /,"hash":"([\da-f]{64})"\}$/;

/**
 * Checks the hash chain of an audit log: finds lines that were changed, removed, added or moved.
 *
 * @param options.keyFile the file of the chain's key. Default: the chain has none
 * @param options.before the end of the chain in the preceding file. Default: the file is the first one
 * @throws the system's error when a file cannot be read
 */
export async function checkChain(
  path: string,
  {
    keyFile,
    before = chainStart,
  }: { readonly keyFile?: string | undefined; readonly before?: ChainEnd | undefined } = {},
): Promise<ChainCheck> {
  const digest = await chainDigest(keyFile);
  const faults: string[] = [];
  let [end, number] = [before, 0];
  for await (const line of linesOf(path)) {
    number++;
    const next = endOfLine(line);
    const [suffix = '', hash = ''] = hashPattern.exec(line) ?? [];
    const text = `${line.slice(0, -suffix.length)}}`;
    if (next === undefined) faults.push(`line ${number} is not complete`);
    else if (digest(text) !== hash) faults.push(`line ${number} was changed, or has another key`);
    else if (next.sequence !== end.sequence + 1 || !text.endsWith(`"previous":"${end.hash}"}`))
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
