import type { DatabaseRegistry, ShardIdentifier } from '@framework/core';
import type { KnownHandler } from '@framework/core/adapter';
import { DeliveryOperator } from '@framework/events';
import * as z from 'zod';

import { type Route, route } from '../route/route.js';

const relaysSchema = z
  .object({
    relays: z.array(
      z.object({
        name: z.string().meta({ example: 'events-to-nats' }),
        state: z.enum(['idle', 'publishing', 'waiting', 'elsewhere', 'nowhere']).meta({
          description:
            '`waiting`: the broker does not confirm, and the log keeps the events; `idle`: nothing was published yet; `elsewhere`: ' +
            'it runs in other processes; `nowhere`: no process has run it yet',
        }),
        lagEvents: z
          .int()
          .meta({ description: 'Committed events that it has not passed, at most 100,000 per database' }),
        lagSeconds: z.number().meta({ description: 'The age of the oldest of them; 0 when there is none' }),
        blocked: z
          .int()
          .meta({ description: 'Events that wait because of a message that the broker refused' }),
        deadLetters: z.int().meta({ description: 'Messages that the broker refused' }),
        lastError: z
          .object({
            code: z.enum(['broker-unavailable', 'message-failed', 'message-refused']),
            date: z.iso.datetime(),
          })
          .optional()
          .meta({ description: 'The last error of the relay in this process; the log has its text' }),
        streams: z
          .array(
            z.object({
              shards: z.array(z.string()),
              state: z.enum(['streaming', 'by-cursor']),
              retainedBytes: z.int().optional(),
              slotStatus: z.string().optional(),
            }),
          )
          .optional()
          .meta({
            description:
              'With logical replication: whether this process streams the log of each database, how much write-ahead log the ' +
              'server keeps for the replication slot, and the status of the slot',
          }),
        unknownOn: z
          .array(z.string())
          .optional()
          .meta({
            description: 'Shards whose databases did not answer: the numbers lack their events',
            example: ['1/0'],
          }),
      }),
    ),
  })
  .meta({ id: 'Relays' });

type RelayHealth = z.input<typeof relaysSchema>['relays'][number];
type Lag = Awaited<ReturnType<DeliveryOperator['lag']>>;

/** What the databases say about the relays. */
interface Answers extends Lag {
  /** The permanent id and all names of each handler. */
  readonly known: readonly KnownHandler[];
}

/** The state of a relay in this process. */
export interface ServedRelayState {
  readonly kind: 'idle' | 'publishing' | 'waiting';
  readonly lastError?: { readonly code: RelayErrorCode; readonly date: Date } | undefined;
  /** The streams of logical replication that feed it; empty when it reads by its cursor. */
  readonly sources: readonly {
    readonly shards: readonly ShardIdentifier[];
    readonly kind: 'streaming' | 'by-cursor';
    readonly slot?: { readonly retainedBytes: number; readonly status: string } | undefined;
  }[];
}

type RelayErrorCode = 'broker-unavailable' | 'message-failed' | 'message-refused';

/** A relay whose health is served. A `relay` of `@framework/relay` is one when its state is a function. */
export interface ServedRelay {
  readonly name: string;
  /** Its former names, one of which a database may know it by. */
  readonly aliases: readonly string[];
  /** Its current state; `undefined` when it runs in other processes only. */
  readonly state: () => ServedRelayState | undefined;
}

/** The health of the configured relays, apart from readiness: while a broker is down, requests are served all the same. */
export function relayHealthRoute({
  databases,
  relays,
}: {
  readonly databases: DatabaseRegistry;
  readonly relays: readonly ServedRelay[];
}): Route {
  const operator = new DeliveryOperator(databases);
  // Shared among all callers at the same time, because each query scans the log after the cursors.
  let running: Promise<Answers> | undefined;
  const query = async (): Promise<Answers> => {
    const [lag, handlers] = await Promise.all([operator.lag(), knownHandlers(databases)]);
    return { ...lag, ...handlers, failures: [...lag.failures, ...handlers.failures] };
  };
  const answersNow = (): Promise<Answers> => {
    running ??= query().finally(() => (running = undefined));
    return running;
  };
  return route.get(
    '/health/relay',
    {
      tag: 'Health',
      summary: 'See how far the relays to brokers are',
      description:
        'The status is 200 even while a broker is down, because no other request depends on the broker.',
      answers: { 200: 'The state of each relay' },
      answer: relaysSchema,
      isPublic: true,
    },
    async () => {
      const answers = await answersNow();
      return { body: { relays: relays.map((relay) => healthOf(relay, answers)) } };
    },
  );
}

async function knownHandlers(databases: DatabaseRegistry): Promise<Pick<Answers, 'known' | 'failures'>> {
  const deliveries = databases.deliveries();
  const answers = await Promise.allSettled(deliveries.map(({ store }) => store.cursors.known()));
  return {
    known: answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : [])),
    failures: answers.flatMap((answer, index) =>
      answer.status === 'fulfilled'
        ? []
        : [{ shards: deliveries[index]?.shards ?? [], error: answer.reason as unknown }],
    ),
  };
}

function healthOf({ name, aliases, state }: ServedRelay, { items, failures, known }: Answers): RelayHealth {
  const declared = new Set([name, ...aliases]);
  // Databases keep the names that a relay had before, also if it no longer declares them.
  const ids = known.filter(({ names }) => names.some((each) => declared.has(each)));
  const own = items.filter(({ handler }) => ids.some((each) => each.handler === handler));
  const unknownOn = [...new Set(failures.flatMap(({ shards }) => shards.map(placeOf)))];
  // Without a place in any log it has no lag either, and nobody would notice that it is missing.
  const isNowhere = own.length === 0 && unknownOn.length === 0;
  const kindElsewhere = isNowhere ? ('nowhere' as const) : ('elsewhere' as const);
  const { kind, lastError, sources } = state() ?? {
    kind: kindElsewhere,
    lastError: undefined,
    sources: [],
  };
  const sum = (count: (lag: Lag['items'][number]) => number): number =>
    own.reduce((total, each) => total + count(each), 0);
  return {
    name,
    state: kind,
    lagEvents: sum(({ pendingCount }) => pendingCount),
    lagSeconds: Math.max(0, ...own.map(({ oldestPendingMs }) => oldestPendingMs / 1_000)),
    blocked: sum(({ blockedCount }) => blockedCount),
    deadLetters: sum(({ deadCount }) => deadCount),
    // Its text is only in the log: it may have hosts, and an event that a webhook has quoted, and everybody may ask.
    ...(lastError && { lastError: { code: lastError.code, date: lastError.date.toISOString() } }),
    ...(sources.length > 0 && { streams: sources.map(streamOf) }),
    ...(unknownOn.length > 0 && { unknownOn }),
  };
}

function streamOf({ shards, kind, slot }: ServedRelayState['sources'][number]) {
  return {
    shards: shards.map(placeOf),
    state: kind,
    ...(slot && { retainedBytes: slot.retainedBytes, slotStatus: slot.status }),
  };
}

function placeOf({ group, member }: ShardIdentifier): string {
  return `${group}/${member}`;
}
