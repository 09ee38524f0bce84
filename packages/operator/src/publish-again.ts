import {
  BrokerUnavailableError,
  type DatabaseDelivery,
  type DeliverableEvent,
  type LogFilter,
  MessageRefusedError,
  isStorableText,
} from '@framework/core/adapter';
import { DeliveryOperator } from '@framework/events';

import { operatorStoreOf } from './answers.js';
import { type ChangeAnswer, type ChangeOptions, changeEach, refuse } from './changes.js';
import type { OperatedRelay } from './extension.js';

/** How many events are read and published at a time. */
const pageSize = 100;
const limitDefault = 10_000;
const limitMax = 100_000;

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
  /** The permanent id of the relay in the database. */
  readonly handlerId: string;
  readonly limit: number;
}

/**
 * Publishes events again that a relay has passed, those of one model in the order of their versions.
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
  const publish = relay?.publishAgain?.bind(relay);
  if (relay === undefined || publish === undefined)
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
  const bounded = { since: new Date(0), ...filter };
  return changeEach(
    databases,
    {
      operation: 'publish-again',
      target: { relay: name, filter, limit },
      handler: relay.name,
      limit: limit + 1,
      workIn: (database, handlerId = relay.name, marker) => {
        const wanted = { database, filter: bounded, handlerId, limit };
        return {
          dryRun: async () => (await placesOf(wanted)).count,
          change: async (onPublished) => {
            const { places, count } = await placesOf(wanted);
            if (count > limit)
              refuse(`More than ${limit} events match: name a shorter time, or repeat with a higher limit`);
            for (const place of places.toReversed()) {
              const events = (await pageAt(wanted, place)).events.toReversed();
              const whole = await Promise.all(events.map((event) => wholeOf(database, event)));
              const { shards } = database;
              const outcomes = await publish(whole, { shards, marker });
              onPublished(outcomes.filter(({ kind }) => kind === 'confirmed').length);
              assertPublished(relay.name, outcomes);
            }
          },
        };
      },
    },
    options,
  );
}

/** Where the pages of a search begin, the newest first, and how many events they have; ends behind the limit. */
async function placesOf(
  wanted: Wanted,
): Promise<{ readonly places: readonly (string | undefined)[]; readonly count: number }> {
  const places: (string | undefined)[] = [];
  let count = 0;
  let place: string | undefined;
  do {
    const { events, next } = await pageAt(wanted, place);
    if (events.length > 0) places.push(place);
    count += events.length;
    place = next;
  } while (place !== undefined && count <= wanted.limit);
  return { places, count: Math.min(count, wanted.limit + 1) };
}

/** What the relay has passed of a page. What it has not is published in its turn. */
async function pageAt({ database, filter, handlerId }: Wanted, after: string | undefined) {
  const page = { limit: pageSize, after };
  const { items, next } = await operatorStoreOf(database).searchEvents(filter, page);
  const events = items.flatMap(({ event, deliveries }) =>
    deliveries.some(({ handler, state }) => handler === handlerId && state === 'passed') ? [event] : [],
  );
  return { events, next };
}

/** An event with its payload, which lists leave out if it is large. */
async function wholeOf(database: DatabaseDelivery, event: DeliverableEvent): Promise<DeliverableEvent> {
  if (event.omitted !== true) return event;
  const found = await new DeliveryOperator({ deliveries: () => [database] }).explain(event.id);
  if (found.kind === 'in-log' && found.event.omitted !== true) return found.event;
  return refuse(`The payload of the event ${event.id} could not be read`);
}

/** @throws MessageRefusedError `message-refused` or BrokerUnavailableError `broker-unavailable` for the first that is not published */
function assertPublished(
  relay: string,
  outcomes: readonly { readonly kind: string; readonly reason?: string }[],
): void {
  const failed = outcomes.find(({ kind }) => kind !== 'confirmed' && kind !== 'left-out');
  if (failed === undefined) return;
  const { kind, reason = kind } = failed;
  if (kind === 'refused') throw new MessageRefusedError(relay, reason);
  throw new BrokerUnavailableError(relay, { cause: new Error(reason) });
}
