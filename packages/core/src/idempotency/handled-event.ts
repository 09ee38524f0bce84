import { ShardIdentifier } from '../sharding/shard-identifier.js';

/** The event for which a handler executes an action. */
export interface HandledEvent {
  /** The handler's permanent id in the database of the event. */
  readonly handler: string;
  readonly eventId: string;
  /** The shard of the event, whose database knows whether it may be delivered again. */
  readonly shard: ShardIdentifier;
}

/** Added to a namespace, in which no such character can be: no client's key is ever in that of handlers. */
const handlersSuffix = '#handlers';

/** The namespace of the keys of handlers, which no client can write to. */
export function handlersNamespace(namespace: string): string {
  return `${namespace}${handlersSuffix}`;
}

/** The event as one text, as it is stored beside a key. */
export function sourceOf({ handler, eventId, shard }: HandledEvent): string {
  return `${shard.group}/${shard.member} ${eventId} ${handler}`;
}

/** The event that was stored beside a key; `undefined` for a text that {@link sourceOf} has not made. */
export function handledEventOf(source: string): HandledEvent | undefined {
  const [, group, member, eventId, handler] = /^(\d{1,3})\/(\d{1,2}) (\S+) (.+)$/s.exec(source) ?? [];
  if (eventId === undefined || handler === undefined) return undefined;
  try {
    return { handler, eventId, shard: ShardIdentifier.of(Number(group), Number(member)) };
  } catch {
    return undefined;
  }
}
