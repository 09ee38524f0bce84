import { FrameworkError } from '@framework/core';
import {
  BrokerUnavailableError,
  type DatabaseDelivery,
  type DeliverableEvent,
  type LogFilter,
  MessageRefusedError,
  isStorableText,
} from '@framework/core/adapter';
import { errorText } from '@framework/events';

import { ExplainedError, operatorStoreOf } from './answers.js';
import { type ChangeAnswer, type ChangeOptions, changeEach, refuse } from './changes.js';
import type { OperatedRelay } from './extension.js';
import { assertBounded } from './search.js';

/** How many events one search lists: few beside large ones, each of which the database decompresses to learn its size. */
const listMin = 20;
const listMax = 100;
/** How many events are loaded and published at a time. */
const partMax = 100;
/** Such a part is smaller than this, unless it is a single event. */
const partBytesMax = 16_777_216;
const limitDefault = 10_000;
const limitMax = 100_000;
const detailMax = 1_000;

/** Which relay publishes again, and who wants it. */
export interface PublishAgainOptions extends ChangeOptions {
  /** One of the relay's names. */
  readonly relay: string;
  /** More events of a database than this are refused, and none is published: 1 to 100,000. Default 10,000. */
  readonly limit?: number | undefined;
}

/** What is published again in one database. */
interface Wanted {
  readonly database: DatabaseDelivery;
  readonly filter: LogFilter;
  readonly relay: OperatedRelay;
  /** The permanent id of the relay in the database. */
  readonly handlerId: string;
  readonly limit: number;
}

/**
 * Publishes events again that a relay has passed, those of one model in the order of their versions. They are listed before the first one is
 * published, so that what is committed meanwhile changes nothing.
 *
 * @throws OperatorRequestError `operator-request` when the filter is empty, an option is invalid, or this process does not have the relay
 * @throws UnknownHandlerError `unknown-handler` when no database knows the relay
 */
export async function publishAgain(
  databases: readonly DatabaseDelivery[],
  relays: readonly OperatedRelay[],
  filter: LogFilter,
  options: PublishAgainOptions,
): Promise<ChangeAnswer> {
  const { relay: name, limit = limitDefault } = options;
  const relay = relays.find((each) => each.name === name || each.aliases?.includes(name) === true);
  if (relay?.publishAgain === undefined)
    refuse(
      `There is no relay ${name} here: name one of the configuration, ${relays.map((each) => each.name).join(', ') || 'which has none'}`,
    );
  if (Object.values(filter).every((field) => field === undefined))
    refuse('Without a filter, the whole log would be published: name a model, a type of events or a time');
  for (const [key, field] of Object.entries(filter))
    if (typeof field === 'string' && !isStorableText(field))
      refuse(`The filter's ${key} contains characters that no database can store: nothing has it`);
  if (!Number.isSafeInteger(limit) || limit < 1 || limit > limitMax)
    refuse(`The limit is ${limit}: pass a whole number from 1 to ${limitMax}`);
  // A search by type reads all of the log, for which it wants a time.
  const bounded = { ...filter, since: filter.since ?? new Date(0) };
  assertBounded(bounded);
  return changeEach(
    databases,
    {
      operation: 'publish-again',
      target: { relay: name, filter, limit },
      names: [relay.name, ...(relay.aliases ?? [])],
      limit: limit + 1,
      workIn: (database, handlerId = relay.name, marker) => {
        const wanted = { database, filter: bounded, relay, handlerId, limit };
        return {
          dryRun: async () => (await listed(wanted)).length,
          change: async (onPublished) => {
            const events = await listed(wanted);
            if (events.length > limit)
              refuse(`More than ${limit} events match: name a shorter time, or repeat with a higher limit`);
            await publishAll(wanted, inModelOrder(events.toReversed()), marker, onPublished);
          },
        };
      },
    },
    options,
  );
}

/**
 * What the relay has passed and wants, the newest first and without payloads; at most one more than the limit. What the relay has not passed
 * is published in its turn.
 */
async function listed(wanted: Wanted): Promise<readonly DeliverableEvent[]> {
  const { database, filter, handlerId, limit } = wanted;
  const events: DeliverableEvent[] = [];
  let after: string | undefined;
  let size = listMin;
  do {
    const { items, next } = await operatorStoreOf(database).searchEvents(filter, { limit: size, after });
    const passed = items.flatMap(({ event, deliveries }) =>
      deliveries.some(({ handler, state }) => handler === handlerId && state === 'passed') ? [event] : [],
    );
    for (const part of partsOf(passed)) events.push(...(await wantedOf(wanted, part)));
    after = next;
    size = items.some(({ event }) => event.omitted === true) ? listMin : Math.min(2 * size, listMax);
  } while (after !== undefined && events.length <= limit);
  return events.slice(0, limit + 1);
}

/** Those events that the filter of the relay wants, without their payloads. */
async function wantedOf(
  { database, relay }: Wanted,
  events: readonly DeliverableEvent[],
): Promise<readonly DeliverableEvent[]> {
  const whole = relay.wants === undefined ? events : await wholeOf(database, events, 0);
  return whole.flatMap((each, index) => {
    const event = events[index];
    if (event === undefined || relay.wants?.(each, database.shards) === false) return [];
    return [{ ...event, payload: undefined, actionParams: undefined, headers: {}, omitted: true }];
  });
}

/** Puts the events of each model in the order of their versions, in the places that they have together: a log may have another order. */
function inModelOrder(events: readonly DeliverableEvent[]): readonly DeliverableEvent[] {
  const ordered = new Map(
    [...Map.groupBy(events, modelOf)].map(([model, own]) => [
      model,
      own
        .toSorted((one, other) => one.modelVersion - other.modelVersion || one.ordinal - other.ordinal)
        .values(),
    ]),
  );
  return events.map((event) => ordered.get(modelOf(event))?.next().value ?? event);
}

function modelOf({ modelName, modelId }: DeliverableEvent): string {
  return `${modelName}\0${modelId}`;
}

async function publishAll(
  { database, relay }: Wanted,
  events: readonly DeliverableEvent[],
  marker: string,
  onPublished: (count: number) => void,
): Promise<void> {
  let count = 0;
  for (const part of partsOf(events)) {
    const whole = await wholeOf(database, part, count);
    const { shards } = database;
    const outcomes =
      (await relay.publishAgain?.(whole, { shards, marker }).catch((error: unknown) => {
        throw explained(relay.name, part[0], error);
      })) ?? [];
    const confirmed = outcomes.filter(({ kind }) => kind === 'confirmed').length;
    count += confirmed;
    onPublished(confirmed);
    assertPublished(relay.name, part, outcomes);
  }
}

/** Splits events into parts that fit into the memory together. */
function* partsOf(events: readonly DeliverableEvent[]): Generator<readonly DeliverableEvent[]> {
  let part: DeliverableEvent[] = [];
  let partBytes = 0;
  for (const event of events) {
    const { bytes = 0 } = event;
    if (part.length === partMax || (part.length > 0 && partBytes + bytes > partBytesMax)) {
      yield part;
      part = [];
      partBytes = 0;
    }
    part.push(event);
    partBytes += bytes;
  }
  if (part.length > 0) yield part;
}

/**
 * The events with their payloads, which lists leave out.
 *
 * @param count how many events were published before
 */
async function wholeOf(
  { store }: DatabaseDelivery,
  events: readonly DeliverableEvent[],
  count: number,
): Promise<readonly DeliverableEvent[]> {
  const large = events.filter(({ omitted }) => omitted === true);
  if (large.length === 0) return events;
  const loaded = await store.log.load(large).catch((error: unknown) => {
    if (FrameworkError.find(error)?.code !== 'invariant-violation') throw error;
    return refuse(
      `An event that was listed is no longer in the log, because retention has removed it meanwhile: ${count} events were published, and ` +
        'nothing is lost if you repeat this, which publishes what is left',
    );
  });
  const byId = new Map(loaded.map((event) => [event.id, event]));
  return events.map((event) => byId.get(event.id) ?? event);
}

/** @throws ExplainedError `message-refused` or `broker-unavailable` for the first event that has failed */
function assertPublished(
  relay: string,
  events: readonly DeliverableEvent[],
  outcomes: readonly { readonly kind: string; readonly reason?: string }[],
): void {
  const failed = events
    .map(({ id }, index) => ({ id, ...(outcomes[index] ?? { kind: 'held-back' }) }))
    .filter(({ kind }) => kind !== 'confirmed' && kind !== 'left-out');
  // What is held back is so because of another one.
  const first = failed.find(({ kind }) => kind !== 'held-back') ?? failed[0];
  if (first === undefined) return;
  const { id, kind, reason = kind } = first;
  const isRefused = kind === 'refused';
  const cause = isRefused
    ? new MessageRefusedError(relay, reason)
    : new BrokerUnavailableError(relay, { cause: new Error(reason) });
  const what = isRefused ? `refuses event ${id}` : `does not take event ${id} now`;
  throw new ExplainedError(`The broker of relay ${relay} ${what}: ${withoutAddresses(reason)}`, { cause });
}

/** The error of a call without any answer, with the event that was to be published first. */
function explained(relay: string, first: DeliverableEvent | undefined, error: unknown): unknown {
  const cause = FrameworkError.find(error);
  if (first === undefined || cause?.code !== 'broker-unavailable') return error;
  const reason = withoutAddresses(errorText(cause.cause));
  return new ExplainedError(
    `The broker of relay ${relay} confirms neither event ${first.id} nor those after it: ${reason}`,
    { cause },
  );
}

/** How addresses are written in messages of clients. */
const addresses = [
  /\b[a-z][a-z\d+.-]*:\/\/\S+/gi,
  /(?<=\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|Host:|DNS:|IP Address:) ?)[^\s,;]+/g,
  /(?<![\w:])\[?(?:[\da-f]{0,4}:){2,}[\da-f.:]*\]?(?::\d+)?/gi,
  /\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b/g,
  /\b[a-z\d](?:[\w.-]*[a-z\d])?:\d{2,5}\b/gi,
];

/** A broker's reason for people who may not see where the broker is; databases can store it. */
function withoutAddresses(reason: string): string {
  const storable = reason.slice(0, detailMax).toWellFormed().replaceAll('\0', '');
  return addresses.reduce((text, address) => text.replaceAll(address, '…'), storable);
}
