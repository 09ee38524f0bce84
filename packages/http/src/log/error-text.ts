import { errorText } from '@framework/events';

/** What takes the place of a secret. */
export const censor = '[redacted]';

/**
 * What must not be in a text, and what takes its place. A value can contain anything, also what looks like its end: so the texts of
 * databases are cut where the first value begins.
 */
const secrets: readonly (readonly [pattern: RegExp, instead: string])[] = [
  // Parameters of statements, in messages of Drizzle, and in contexts of PostgreSQL.
  [/\b(params|parameters): (?!\[redacted\])[^]*$/i, `$1: ${censor}`],
  // Details of PostgreSQL: "Key (email)=(bob@example.com) already exists", "Failing row contains (1, bob@example.com)".
  [/\)\s*=\s*\((?!\[redacted\])[^]*$/, `)=(${censor}`],
  [/\b(row contains) \((?!\[redacted\])[^]*$/i, `$1 (${censor}`],
  // Messages of PostgreSQL that quote a value.
  [/\b((?:invalid|malformed|out of range|unrecognized)\b[^":\n]*: )"(?!\[redacted\])[^]*$/i, `$1"${censor}"`],
  [/\b(value) "(?!\[redacted\])[^]*$/i, `$1 "${censor}"`],
  [/\bUnexpected (?:token|string|number|non-whitespace|end)\b[^]*$/, 'The text is not valid JSON'],
  [/\b(balance of) (?!\[redacted\])[^]*$/, `$1 ${censor}`],
  // Users, passwords and parameters of URLs.
  [/\b(?!file:)([a-z][a-z\d+.-]{0,20}:\/\/)[^\s"'<>]*@/gi, `$1${censor}@`],
  [/\b([a-z][a-z\d+.-]{0,20}:\/\/[^\s"'<>?]*)\?[^\s"'<>]*/gi, `$1?${censor}`],
  [/-----BEGIN [^-]*-----[^]*?(?:-----END [^-]*-----|$)/g, censor],
  [/\b(authorization|(?:set-)?cookie)(["']?\s*[:=]\s*)(?!\[redacted\])[^\n]*/gi, `$1$2${censor}`],
  [/\b(Bearer|Basic)\s+[\w.~+/=-]{8,}/gi, `$1 ${censor}`],
  [/\beyJ[\w-]{4,}(?:\.[\w-]*)+/g, censor],
  [/\bwhsec_[\w+/=-]+/g, censor],
  [
    /((?:password|passwd|pwd|secret|token|api[-_]?key|(?:private|access)[-_]?key)["']?\s*[:=]\s*)(?!\[redacted\])(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&]+)/gi,
    `$1${censor}`,
  ],
];

/** Texts are cut to this many characters, at the end of a word, so that no part of a secret is left that does not look like one. */
const charactersMax = 4_000;

/** A text without the secrets that it may quote. Redacting it again changes nothing. */
export function redacted(text: string): string {
  return secrets.reduce((kept, [pattern, instead]) => kept.replace(pattern, instead), text);
}

function short(text: string): string {
  if (text.length <= charactersMax) return text;
  return `${text.slice(0, charactersMax).replace(/\S*$/, '')}…`;
}

/** SQLSTATEs of PostgreSQL about a value, which the message quotes, in the language of the server. */
const dataStates = /^22/;

/** A server that does not speak English writes other words around the value, and other quotation marks. */
const quotationMark = /["'`„‚「『\p{Pi}\p{Pf}]/u;

function messageOf(error: Error): string {
  const code: unknown = 'code' in error ? error.code : undefined;
  const message = short(error.message);
  const isAboutValue = typeof code === 'string' && code.length === 5 && dataStates.test(code);
  const valueAt = isAboutValue ? message.search(quotationMark) : -1;
  return redacted(valueAt === -1 ? message : `${message.slice(0, valueAt)}"${censor}"`);
}

/** A text without the secrets of an error and its causes, whose messages it repeats. */
export function redactedWith(text: string, error: unknown): string {
  return redactedOf(text, causesOf(error));
}

function redactedOf(text: string, chain: readonly Error[]): string {
  // The innermost first: an outer message that was changed would no longer contain it.
  const unquoted = chain.toReversed().reduce((kept, link) => {
    const { message } = link;
    return message === '' || message.length > charactersMax
      ? kept
      : kept.replaceAll(message, () => messageOf(link));
  }, short(text));
  return redacted(unquoted);
}

const causesMax = 8;
/** How many characters of the frames of a stack are kept. */
const framesMax = 3_000;

/**
 * Formats the stacks of an error and its causes for the log: at most eight, each up to about 7,000 characters.
 *
 * Only stacks are logged, because other fields of a database's error may contain the values of a row.
 */
export function errorStack(error: unknown): string {
  const chain = causesOf(error);
  return chain.map((link) => stackOf(link, chain)).join('\ncaused by: ');
}

/** Joins the messages of an error and its causes, limited like the stacks. Skips a cause that is already quoted. */
export function errorReason(error: unknown): string {
  const chain = causesOf(error);
  return chain
    .map((link) => redactedOf(link.message, chain) || link.name)
    .reduce((said, text) => (said.includes(text) ? said : `${said}: ${text}`));
}

/** What a failed attempt of a handler threw, whatever that is: names, messages and causes, at most 2,000 characters. */
export function attemptReason(thrown: unknown): string {
  const text = errorText(thrown);
  try {
    return redactedOf(text, causesOf(thrown));
  } catch {
    // What was thrown refuses to be read.
    return redacted(text);
  }
}

/** The stack with the redacted message. A message may contain what looks like frames. */
function stackOf({ stack = '', name, message }: Error, chain: readonly Error[]): string {
  const messageAt = stack.indexOf(message);
  const rest = messageAt === -1 ? '' : stack.slice(messageAt + message.length);
  const framesAt = rest.indexOf('\n    at ');
  const frames = framesAt === -1 ? '' : rest.slice(framesAt, framesAt + framesMax);
  return `${message === '' ? name : `${name}: ${redactedOf(message, chain)}`}${frames}`;
}

function causesOf(error: unknown): readonly Error[] {
  try {
    const chain: Error[] = [];
    for (let link = error; link instanceof Error && chain.length < causesMax; link = link.cause)
      chain.push(typeof link.message === 'string' ? link : new Error(errorText(link)));
    return chain.length === 0 ? [new Error(errorText(error))] : chain;
  } catch {
    return [new Error('The error refuses to be read')];
  }
}
