import { UnreadableMessageError } from '@framework/core/adapter';

/**
 * The headers of a message as a client has them: a record, a `Map`, `Headers` of HTTP, those of NATS, or the fields of a Redis
 * entry. Values are text, bytes, numbers, or a list of one of them.
 */
export type MessageHeaders =
  Iterable<readonly [name: string | Uint8Array, value: unknown]> | Readonly<Record<string, unknown>>;

interface Binding {
  readonly prefix: string;
  /** @throws URIError */
  readonly decode: (text: string) => string;
}

const asIs = (text: string): string => text;

/** How the brokers name and encode the attributes of CloudEvents; fields of Redis have no prefix. */
const bindings: readonly Binding[] = [
  // HTTP and NATS
  { prefix: 'ce-', decode: decodeURIComponent },
  // Kafka
  { prefix: 'ce_', decode: asIs },
  // AMQP, and AMQP for clients that allow no colon
  { prefix: 'cloudevents:', decode: asIs },
  { prefix: 'cloudevents_', decode: asIs },
  // Redis
  { prefix: '', decode: asIs },
];

const attributeName = /^[a-z0-9]+$/;
const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * The CloudEvents attributes of a message, by their names without a prefix. The broker is recognised by the header of the attribute
 * `specversion`, which every message has.
 *
 * @throws UnreadableMessageError `unreadable-message` when there is no such header, or the value of an attribute is not text
 */
export function attributesOf(headers: MessageHeaders): Readonly<Record<string, string>> {
  const named = new Map(entriesOf(headers).map(([name, value]) => [nameOf(name), value]));
  const binding = bindings.find(({ prefix }) => named.has(`${prefix}specversion`));
  if (binding === undefined) {
    const names = [...named.keys()].slice(0, 10).join(', ');
    throw new UnreadableMessageError('specversion', `is missing among the headers (${names || 'none'})`);
  }
  const { prefix, decode } = binding;
  const attributes = [...named]
    .map(([name, value]) => [name.startsWith(prefix) ? name.slice(prefix.length) : '', value] as const)
    .filter(([name]) => attributeName.test(name) && name !== 'data')
    .map(([name, value]) => [name, textOf(name, value, decode)] as const);
  return Object.fromEntries(attributes);
}

function entriesOf(
  headers: MessageHeaders,
): readonly (readonly [name: string | Uint8Array, value: unknown])[] {
  const isObject = typeof headers === 'object' && headers !== null;
  const entries = isObject && Symbol.iterator in headers ? [...(headers as Iterable<unknown>)] : undefined;
  if (isObject && entries === undefined) return Object.entries(headers);
  if (entries?.every(isPair) === true) return entries;
  throw new UnreadableMessageError('specversion', 'is missing: the headers are neither a record nor pairs');
}

function isPair(entry: unknown): entry is readonly [name: string | Uint8Array, value: unknown] {
  if (!Array.isArray(entry) || entry.length !== 2) return false;
  const [name] = entry as readonly unknown[];
  return typeof name === 'string' || name instanceof Uint8Array;
}

/** Names of HTTP headers are written in any case. */
function nameOf(name: string | Uint8Array): string {
  return (typeof name === 'string' ? name : Buffer.from(name).toString()).toLowerCase();
}

function textOf(name: string, value: unknown, decode: Binding['decode']): string {
  const [only = value, ...others] = Array.isArray(value) ? (value as readonly unknown[]) : [value];
  if (others.length > 0) throw new UnreadableMessageError(name, `has ${others.length + 1} values`);
  if (typeof only === 'number' || typeof only === 'bigint' || typeof only === 'boolean') return String(only);
  try {
    if (typeof only === 'string') return decode(only);
    if (only instanceof Uint8Array) return decode(utf8.decode(only));
  } catch (cause) {
    throw new UnreadableMessageError(name, `'${String(only).slice(0, 64)}' is not encoded as text`, {
      cause,
    });
  }
  throw new UnreadableMessageError(name, `is no text, but of the type ${typeof only}`);
}
