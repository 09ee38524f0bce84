import { randomUUID } from 'node:crypto';

import { InvalidRequestError } from './invalid-request-error.js';

/**
 * A number in a JSON text that a binary float would change, such as one with thirty digits. Only `decimalField` accepts it: it has no fields,
 * and refuses to become a text or a number of its own accord.
 */
export class JsonNumber {
  readonly #source: string;
  #isRead = false;

  constructor(source: string) {
    this.#source = source;
  }

  /** The text of a number, for example `0.10000000000000000001`. */
  static sourceOf(number: JsonNumber): string {
    number.#isRead = true;
    return number.#source;
  }

  /** Whether a field has read it. */
  get isRead(): boolean {
    return this.#isRead;
  }

  /** Refuses to become `{}` in JSON. */
  toJSON(): never {
    return this[Symbol.toPrimitive]();
  }

  [Symbol.toPrimitive](): never {
    throw new InvalidRequestError('bad-request', 'A number of the body has more digits than a binary float');
  }
}

/** The values that contain a {@link JsonNumber}. */
const withJsonNumbers = new WeakSet<object>();

/** Whether a parsed JSON text contains a number that a binary float would change. */
export function hasJsonNumber(value: unknown): boolean {
  return typeof value === 'object' && value !== null && withJsonNumbers.has(value);
}

/**
 * Parses JSON without loss: a number that a binary float would change is a {@link JsonNumber}, which no schema mistakes for a number.
 *
 * @throws SyntaxError when the text is not JSON, an object has a name twice, or a name is a single escape, such as `"\u0061"`; RangeError
 * when it is nested too deeply
 */
export function parseExactJson(text: string): unknown {
  const plainly: unknown = JSON.parse(text);
  return isPlain(text, plainly) ? plainly : parseExactly(text);
}

/**
 * Whether a JSON text surely has no long number, no repeated name and no escape, as almost all have: it has as many colons as its value has
 * fields, of which a repeated name would have more, and no digits of a number that is not short and whole.
 */
function isPlain(text: string, value: unknown): boolean {
  const { fieldCount, hasNumber } = contentsOf(value);
  let colonCount = 0;
  for (let at = text.indexOf(':'); at >= 0; at = text.indexOf(':', at + 1)) colonCount++;
  return colonCount === fieldCount && !text.includes('\\') && !(hasNumber && /\d[.eE]|\d{16}/.test(text));
}

function contentsOf(value: unknown): { readonly fieldCount: number; readonly hasNumber: boolean } {
  if (typeof value !== 'object' || value === null)
    return { fieldCount: 0, hasNumber: typeof value === 'number' };
  const inner = Object.values(value);
  let fieldCount = Array.isArray(value) ? 0 : inner.length;
  let hasNumber = false;
  for (const each of inner) {
    const contents = contentsOf(each);
    fieldCount += contents.fieldCount;
    hasNumber ||= contents.hasNumber;
  }
  return { fieldCount, hasNumber };
}

/** Begins the texts that stand for long numbers while a text is parsed; no client can know it. */
const marker = `${randomUUID()} `;
const stringsAndNumbers = /("[^"\\]*(?:\\.[^"\\]*)*")|-?\d[\d.eE+-]*/g;

/** Marks long numbers in the text. A reviver would be given the source of a number, but V8 omits it for some names with escapes. */
function parseExactly(text: string): unknown {
  assertNames(text);
  let isChanged = false;
  const marked = text.replaceAll(stringsAndNumbers, (part: string, string: string | undefined) => {
    if (string !== undefined || isSameDecimal(part, String(Number(part)))) return part;
    isChanged = true;
    return `"${marker}${part}"`;
  });
  const value: unknown = JSON.parse(marked, (_name, each: unknown) =>
    typeof each === 'string' && each.startsWith(marker) ? new JsonNumber(each.slice(marker.length)) : each,
  );
  if (isChanged && typeof value === 'object' && value !== null) withJsonNumbers.add(value);
  return value;
}

/** What opens and ends an object, and each string, with the colon after it if it is a name. */
const namesAndBraces = /[{}]|("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?/g;

const singleEscape = /^"\\(u[\da-f]{4}|[^u])"$/i;

/**
 * Refuses names that readers of a valid JSON text could understand in different ways: of two fields with one name, `JSON.parse` takes the
 * last, where a proxy that checks requests may take the first; and V8 can take a name that is a single escape for another one that it has
 * parsed before.
 */
function assertNames(text: string): void {
  const open: Set<string>[] = [];
  for (const [part, string, colon] of text.matchAll(namesAndBraces)) {
    if (part === '{') open.push(new Set());
    if (part === '}') open.pop();
    if (string === undefined || colon === undefined) continue;
    if (singleEscape.test(string)) throw new SyntaxError('A name consists of a single escape');
    const name = String(JSON.parse(string));
    const names = open.at(-1);
    if (names?.has(name) === true) throw new SyntaxError('An object has a name twice');
    names?.add(name);
  }
}

/** More characters than the shortest text of any binary float, with room for zeros at its end. */
const floatCharactersMax = 400;

function isSameDecimal(source: string, text: string): boolean {
  return source === text || (source.length <= floatCharactersMax && plain(source) === plain(text));
}

/** The significant digits of a decimal and its exponent, so that equal numbers have equal texts. */
function plain(decimal: string): string {
  const [mantissa = '', exponent = '0'] = decimal.toLowerCase().split('e');
  const sign = mantissa.startsWith('-') ? '-' : '';
  const [whole = '', fraction = ''] = mantissa.slice(sign.length).split('.');
  const digits = `${whole}${fraction}`.replace(/^0+/, '');
  const significant = digits.replace(/0+$/, '');
  if (significant === '') return '0';
  return `${sign}${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}
