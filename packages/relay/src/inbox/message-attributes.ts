import { UnreadableMessageError } from '@framework/core/adapter';

/**
 * The headers of a message as a client has them: a record, a `Map`, `Headers` of HTTP, those of NATS, the fields of a Redis entry, a
 * list of pairs, a list of records with one key each, or a flat list of names and values. Values are text, bytes, numbers, dates,
 * message attributes of SQS or SNS, or a list of one of them.
 */
export type MessageHeaders =
  | Iterable<readonly [name: string | Uint8Array, value: unknown]>
  | readonly (string | Uint8Array)[]
  | readonly Readonly<Record<string, unknown>>[]
  | Readonly<Record<string, unknown>>;

type Header = readonly [name: string | Uint8Array, value: unknown];

/** A list that some clients have instead of a record. */
interface ListForm {
  readonly fits: (entries: readonly unknown[]) => boolean;
  readonly headersIn: (entries: readonly unknown[]) => readonly Header[];
}

const isName = (value: unknown): boolean => typeof value === 'string' || value instanceof Uint8Array;

const listForms: readonly ListForm[] = [
  // `Map`, `Headers`, NATS
  {
    fits: (entries) =>
      entries.every((entry) => Array.isArray(entry) && entry.length === 2 && isName(entry[0])),
    headersIn: (entries) => entries as readonly Header[],
  },
  // `rawHeaders` of Node
  {
    fits: (entries) => entries.length % 2 === 0 && entries.every(isName),
    headersIn: (entries) =>
      entries.flatMap((name, index) => (index % 2 === 0 ? [[name as string, entries[index + 1]]] : [])),
  },
  // node-rdkafka, and the Kafka events of AWS Lambda
  {
    fits: (entries) => entries.every((entry) => isRecord(entry) && Object.keys(entry).length === 1),
    headersIn: (entries) =>
      entries
        .flatMap((entry) => Object.entries(entry as Readonly<Record<string, unknown>>))
        .map(([name, value]) => [name, bytesOfLambda(value)]),
  },
];

/** The fields with the type and the text of a message attribute: SQS in AWS Lambda, its SDK, and SNS. */
const messageAttributes = [
  ['dataType', 'stringValue'],
  ['DataType', 'StringValue'],
  ['Type', 'Value'],
] as const;

interface Binding {
  readonly prefix: string;
  /** @throws URIError */
  readonly decode: (text: string) => string;
}

const asIs = (text: string): string => text;

/** How the brokers name and encode the attributes of CloudEvents; fields of Redis have no prefix. */
const bindings: readonly Binding[] = [
  // HTTP and NATS
  { prefix: 'ce-', decode: decodeHeader },
  // Kafka
  { prefix: 'ce_', decode: asIs },
  // AMQP, and AMQP for clients that allow no colon
  { prefix: 'cloudevents:', decode: asIs },
  { prefix: 'cloudevents_', decode: asIs },
  // Redis
  { prefix: '', decode: asIs },
];

/** A space is encoded; clients that join the values of a header that is there twice put one between them. */
function decodeHeader(text: string): string {
  if (/\s/.test(text)) throw new URIError('There is a space');
  return decodeURIComponent(text);
}

const attributeName = /^[a-z0-9]+$/;
const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * The CloudEvents attributes of a message, by their names without a prefix. The broker is recognised by the header of the attribute
 * `specversion`, which every message has.
 *
 * @throws UnreadableMessageError `unreadable-message` when there is no such header, as in structured mode, or more than one, or the
 * value of an attribute is not one text
 */
export function attributesOf(headers: MessageHeaders): Readonly<Record<string, string>> {
  return attributesIn(valuesByName(headers));
}

/** The values of each header, by its name in lower case: names of HTTP headers are written in any case. */
export function valuesByName(headers: MessageHeaders): ReadonlyMap<string, readonly unknown[]> {
  const values = new Map<string, unknown[]>();
  for (const [header, value] of entriesOf(headers)) {
    const name = (typeof header === 'string' ? header : Buffer.from(header).toString()).toLowerCase();
    // KafkaJS and Node have `undefined` for a header that is not there.
    if (value === undefined) continue;
    const known = values.get(name) ?? [];
    values.set(name, known);
    for (const each of valuesIn(value)) known.push(plainOf(each));
  }
  return values;
}

/** @throws UnreadableMessageError as {@link attributesOf} */
export function attributesIn(
  headers: ReadonlyMap<string, readonly unknown[]>,
): Readonly<Record<string, string>> {
  const [binding, ...others] = bindings.filter(({ prefix }) => headers.has(`${prefix}specversion`));
  if (binding === undefined) {
    const names = [...headers.keys()].slice(0, 10).join(', ');
    throw new UnreadableMessageError('specversion', `is missing among the headers (${names || 'none'})`);
  }
  if (others.length > 0) {
    const names = [binding, ...others].map(({ prefix }) => `${prefix}specversion`).join(', ');
    throw new UnreadableMessageError('specversion', `is there more than once (${names})`);
  }
  const { prefix, decode } = binding;
  const attributes = [...headers]
    .map(([name, values]) => [name.startsWith(prefix) ? name.slice(prefix.length) : '', values] as const)
    .filter(([name]) => attributeName.test(name) && name !== 'data')
    .map(([name, values]) => [name, onlyText(name, values, decode)] as const);
  return Object.fromEntries(attributes);
}

/** The attributes of the JSON format of CloudEvents; `null` is an attribute that is not there. */
export function attributesOfJson(envelope: object): Readonly<Record<string, string>> {
  const attributes = Object.entries(envelope)
    .filter(([name, value]) => attributeName.test(name) && value !== null)
    .map(([name, value]) => [name, onlyText(name, [value as unknown], asIs)] as const);
  return Object.fromEntries(attributes);
}

function entriesOf(headers: MessageHeaders): readonly Header[] {
  if (isRecord(headers) && !(Symbol.iterator in headers)) return Object.entries(headers);
  const isList = typeof headers === 'object' && headers !== null && Symbol.iterator in headers;
  const entries: readonly unknown[] = isList ? [...(headers as Iterable<unknown>)] : [];
  const form = listForms.find(({ fits }) => fits(entries));
  if (isList && form !== undefined) return form.headersIn(entries);
  throw new UnreadableMessageError(
    'specversion',
    'is missing: the headers are neither a record, nor pairs, nor records with one key each, nor names and values in turn',
  );
}

/** A list has a value for each header of the same name. */
function valuesIn(value: unknown): readonly unknown[] {
  // The bytes of Lambda, if they are no longer in the list in which they came: [48] would be '0' or '48'.
  const isAmbiguous = Array.isArray(value) && value.some((each) => typeof each === 'number');
  return Array.isArray(value) && !isAmbiguous ? (value as readonly unknown[]) : [value];
}

/** AWS Lambda has the bytes of a header as numbers, which have a sign. */
function bytesOfLambda(value: unknown): unknown {
  return Array.isArray(value) && value.every(isByte) ? Uint8Array.from(value as readonly number[]) : value;
}

/** @throws UnreadableMessageError when it has not exactly one value, or one that is not text */
function onlyText(name: string, values: readonly unknown[], decode: (text: string) => string): string {
  const [value] = values;
  if (values.length !== 1) throw new UnreadableMessageError(name, `has ${values.length} values`);
  if (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean')
    return String(value);
  try {
    if (typeof value === 'string') return decode(value);
    if (value instanceof Uint8Array) return decode(utf8.decode(value));
    if (value instanceof Date) return value.toISOString();
  } catch (cause) {
    throw new UnreadableMessageError(name, `'${String(value).slice(0, 64)}' is not encoded as text`, {
      cause,
    });
  }
  throw new UnreadableMessageError(name, `is ${kindOf(value)} instead of text`);
}

function isByte(value: unknown): boolean {
  return Number.isInteger(value) && Number(value) >= -128 && Number(value) <= 255;
}

/** The text of a message attribute of SQS or SNS; everything else as it is. */
function plainOf(value: unknown): unknown {
  if (!isRecord(value)) return value;
  const [type, text] = messageAttributes.find(([, field]) => typeof value[field] === 'string') ?? [];
  if (type === undefined || ![undefined, 'String', 'Number'].includes(value[type] as string)) return value;
  return value[text];
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return (
    typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array)
  );
}

/** Names the kind of a value in messages. */
export function kindOf(value: unknown): string {
  if (Array.isArray(value)) return typeof value[0] === 'number' ? 'a list of numbers' : 'a list';
  if (value === null || value === undefined) return String(value);
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
