/** A number in a JSON text that a binary float would change, such as one with thirty digits. */
export class JsonNumber {
  /** The text of the number, for example `0.10000000000000000001`. */
  readonly source: string;

  constructor(source: string) {
    this.source = source;
  }
}

/** The third argument of a `JSON.parse` reviver, which TypeScript's library lacks so far. */
interface SourceContext {
  readonly source?: string;
}

/**
 * Parses JSON without loss: a number that a binary float would change is a {@link JsonNumber}, which no schema mistakes for a number.
 *
 * @throws SyntaxError when the text is not JSON, or an object has a name twice; RangeError when it is nested too deeply
 * @see https://tc39.es/proposal-json-parse-with-source/
 */
export function parseExactJson(text: string): unknown {
  const value: unknown = JSON.parse(text, keepSource);
  if (hasRepeatedName(text)) throw new SyntaxError('An object has a name twice');
  return value;
}

/** What opens and ends an object, and each string, with the colon after it if it is a name. */
const namesAndBraces = /[{}]|("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?/g;

/**
 * Whether an object in a valid JSON text has two fields of one name. `JSON.parse` would take the last one, where a proxy that checks
 * requests, or a reader of its log, may take the first.
 */
function hasRepeatedName(text: string): boolean {
  const open: Set<string>[] = [];
  for (const [part, string, colon] of text.matchAll(namesAndBraces)) {
    if (part === '{') open.push(new Set());
    if (part === '}') open.pop();
    if (string === undefined || colon === undefined) continue;
    const name = String(JSON.parse(string));
    const names = open.at(-1);
    if (names?.has(name) === true) return true;
    names?.add(name);
  }
  return false;
}

function keepSource(_key: string, value: unknown, context?: SourceContext): unknown {
  if (typeof value !== 'number' || context?.source === undefined) return value;
  return isSameDecimal(context.source, String(value)) ? value : new JsonNumber(context.source);
}

function isSameDecimal(source: string, text: string): boolean {
  return source === text || plain(source) === plain(text);
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
