import { isDeepStrictEqual } from 'node:util';

import { type EventClass, InvariantViolationError } from '@framework/core';
import { type StartFrom, eventTypeOf, isStorableText } from '@framework/core/adapter';

import {
  type AnyEventHandler,
  type EventHandlerClass,
  type EventHandlerDeclaration,
  type EventHandlerOptions,
  type HandlerRetry,
  type NamedHandlerOptions,
  decoratorOptions,
  discoveredHandlers,
  set,
} from './event-handler.js';

/** An idempotency key of 255 characters must have room for this name, the event's id and the action's name. */
const nameCharactersMax = 100;
/** JavaScript writes later years with a sign and six digits, which databases do not accept as a date. */
const yearMax = 9_999;

/** A handler with its declaration. */
export interface RegisteredHandler {
  readonly name: string;
  readonly handler: AnyEventHandler;
  readonly options: NamedHandlerOptions;
  /** The classes that it wants by their `event_type`; `undefined` when it wants every event. */
  readonly eventClasses: ReadonlyMap<string, EventClass> | undefined;
}

/** A handler as one database knows it. */
export interface DatabaseHandler extends RegisteredHandler {
  /** The permanent id under which the database stores the handler's state: its first name there. */
  readonly id: string;
}

/** The handlers that a delivery calls: one instance of each class, each with a different durable name. */
export class EventHandlerRegistry {
  /** The handlers, in the order in which they were given. */
  readonly handlers: readonly RegisteredHandler[];

  /**
   * Takes handlers as values; their classes declare their names, usually as `static readonly handlerName`.
   *
   * @throws InvariantViolationError `invariant-violation` when one declares no name, no events, or an unknown or invalid option, when
   * two have the same name or alias, when static fields and a decorator disagree, or when two classes of events have the same `event_type`
   */
  constructor(handlers: readonly AnyEventHandler[]) {
    const names = new Map<string, string>();
    const types = new Map<string, EventClass>();
    this.handlers = handlers.map((handler) => {
      const registered = registeredHandler(handler);
      for (const name of [registered.name, ...(registered.options.aliases ?? [])])
        claim(names, name, registered);
      for (const [type, eventClass] of registered.eventClasses ?? []) assertOneClass(types, type, eventClass);
      return registered;
    });
  }

  /** The event classes that at least one of the handlers wants. */
  eventClasses(): readonly EventClass[] {
    return this.handlers.flatMap(({ eventClasses: wanted }) => [...(wanted?.values() ?? [])]);
  }

  /**
   * Takes every handler that is marked with `@FrameworkEventHandler` and imported.
   *
   * @param create returns the one instance of a class, for example from a container
   */
  static discover(create: (handler: EventHandlerClass) => AnyEventHandler): EventHandlerRegistry {
    return new EventHandlerRegistry(discoveredHandlers().map(create));
  }
}

function registeredHandler(handler: AnyEventHandler): RegisteredHandler {
  const className = handler.constructor.name;
  const options = declaredOptions(handler);
  const { name } = options;
  for (const each of [name, ...(options.aliases ?? [])]) {
    if (!isStorableText(each) || each.length === 0 || each.length > nameCharactersMax) {
      throw new InvariantViolationError(
        `${className} declares the invalid name '${each}': use 1 to ${nameCharactersMax} characters, without NUL or half a surrogate pair`,
      );
    }
  }
  if (options.startFrom !== undefined && !isStart(options.startFrom)) {
    throw new InvariantViolationError(
      `${className} declares an invalid startFrom: set 'beginning', 'now', or { time } with a Date in the years 1 to ${yearMax}`,
    );
  }
  if (!('handle' in handler) && !('handleBatch' in handler)) {
    throw new InvariantViolationError(`${className} handles nothing: add handle(…) or handleBatch(…)`);
  }
  return { name, handler, options, eventClasses: eventClasses(handler) };
}

/** What the class of a handler declares, in static fields or in its decorator. */
function declaredOptions({ constructor }: AnyEventHandler): NamedHandlerOptions {
  const { name: className, handlerName, options = {} } = constructor as StaticFields;
  const { name: markedName, ...marked } = decoratorOptions(constructor);
  const fields = givenOptions(className, options);
  const completions = givenOptions(className, marked);
  const name = oneOf(className, 'name', handlerName, markedName);
  for (const option of Object.keys(completions) as (keyof EventHandlerOptions)[])
    oneOf(className, option, fields[option], completions[option]);
  if (name !== undefined) return { ...fields, ...completions, name };
  throw new InvariantViolationError(
    `${className} declares no name: add static readonly handlerName = '…', or mark it with @FrameworkEventHandler({ name: '…' })`,
  );
}

type StaticFields = Partial<EventHandlerDeclaration> & { readonly name: string };

/** What is declared in a static field or in the decorator, or in both alike. */
function oneOf<T>(
  className: string,
  option: string,
  field: T | undefined,
  marked: T | undefined,
): T | undefined {
  if (field === undefined || marked === undefined || isDeepStrictEqual(field, marked)) return field ?? marked;
  throw new InvariantViolationError(
    `${className} declares one ${option} in a static field and another in @FrameworkEventHandler: remove one`,
  );
}

/** The options that have a value, even by inheritance or a getter; one that is left undefined must not replace another. */
function givenOptions(className: string, options: EventHandlerOptions): EventHandlerOptions {
  assertShapes(className, options);
  const {
    aliases,
    startFrom,
    retry,
    timeoutMs,
    concurrency,
    batchMax,
    whenBatchFails,
    whenProcessDies,
    source,
    ...unknown
  } = options;
  const { attemptsMax, backoffBaseMs, backoffMaxMs, ...unknownOfRetry }: Partial<HandlerRetry> = retry ?? {};
  const names = [...Object.keys(unknown), ...Object.keys(unknownOfRetry).map((name) => `retry.${name}`)];
  if (names.length > 0) {
    throw new InvariantViolationError(
      `${className} declares ${names.join(', ')}: a handler has no such option; see EventHandlerOptions`,
    );
  }
  return set({
    aliases,
    startFrom,
    retry: retry && set({ attemptsMax, backoffBaseMs, backoffMaxMs }),
    timeoutMs,
    concurrency,
    batchMax,
    whenBatchFails,
    whenProcessDies,
    source,
  });
}

/** In JavaScript no types prevent these mistakes, and none of them would be noticed later. */
function assertShapes(className: string, options: EventHandlerOptions): void {
  const refuse = (option: string, how: string): never => {
    throw new InvariantViolationError(`${className} declares an invalid ${option}: set ${how}`);
  };
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    refuse('options', "an object such as { startFrom: 'beginning' }");
  const { aliases, retry, whenBatchFails, whenProcessDies } = options;
  if (aliases !== undefined && !Array.isArray(aliases)) refuse('aliases', 'an array of names');
  if (retry !== undefined && (typeof retry !== 'object' || retry === null || Array.isArray(retry)))
    refuse('retry', 'an object such as { attemptsMax: 3 }');
  if (whenBatchFails !== undefined && whenBatchFails !== 'block' && whenBatchFails !== 'wait')
    refuse('whenBatchFails', "'block' or 'wait'");
  if (whenProcessDies !== undefined && whenProcessDies !== 'quarantine' && whenProcessDies !== 'repeat')
    refuse('whenProcessDies', "'quarantine' or 'repeat'");
}

/** Whether every database can represent the time; in JavaScript it may be null, which does not count as left out. */
function isStart(startFrom: StartFrom | null): boolean {
  if (startFrom === 'beginning' || startFrom === 'now') return true;
  const year = startFrom?.time instanceof Date ? startFrom.time.getUTCFullYear() : NaN;
  return year >= 1 && year <= yearMax;
}

function eventClasses({ event, constructor }: AnyEventHandler): ReadonlyMap<string, EventClass> | undefined {
  if (event === 'all') return undefined;
  const classes = typeof event === 'function' ? [event] : event;
  if (!Array.isArray(classes) || classes.length === 0) {
    throw new InvariantViolationError(`${constructor.name} wants no events: set readonly event = …`);
  }
  const byType = new Map<string, EventClass>();
  for (const eventClass of classes as readonly EventClass[]) {
    assertOneClass(byType, eventTypeOf(eventClass), eventClass);
  }
  return byType;
}

function claim(names: Map<string, string>, name: string, { name: owner }: RegisteredHandler): void {
  const other = names.get(name);
  if (other !== undefined) {
    throw new InvariantViolationError(
      `Handlers ${other} and ${owner} both claim the name ${name}: rename one`,
    );
  }
  names.set(name, owner);
}

function assertOneClass(types: Map<string, EventClass>, type: string, eventClass: EventClass): void {
  const known = types.get(type) ?? eventClass;
  if (known !== eventClass) {
    throw new InvariantViolationError(
      `Two event classes have the event_type ${type}: give one of them a different static readonly eventType`,
    );
  }
  types.set(type, eventClass);
}
