import type { DatabaseRegistry } from '@framework/core';
import { DeliveryOperator } from '@framework/events';
import { z } from '@hono/zod-openapi';

import { serve } from './serve.js';
import type { ServedRelay, WalletApp } from './wallet-app-env.js';

const relaysSchema = z
  .object({
    relays: z.array(
      z.object({
        name: z.string().openapi({ example: 'events-to-nats' }),
        state: z.enum(['idle', 'publishing', 'waiting', 'elsewhere', 'nowhere']).openapi({
          description:
            '`waiting`: the broker does not confirm, and the log keeps the events; `idle`: nothing was published yet; `elsewhere`: ' +
            'it runs in other processes; `nowhere`: no process has run it yet',
        }),
        lagEvents: z
          .int()
          .openapi({ description: 'Committed events that it has not passed, at most 100,000 per database' }),
        lagSeconds: z
          .number()
          .openapi({ description: 'The age of the oldest of them; 0 when there is none' }),
        blocked: z
          .int()
          .openapi({ description: 'Events that wait because of a message that the broker refused' }),
        deadLetters: z.int().openapi({ description: 'Messages that the broker refused' }),
        lastErrorDate: z.iso
          .datetime()
          .optional()
          .openapi({ description: 'When the broker last failed in this process; the log says why' }),
        unknownOn: z
          .array(z.string())
          .optional()
          .openapi({
            description: 'Shards whose databases did not answer: the numbers lack their events',
            example: ['1/0'],
          }),
      }),
    ),
  })
  .openapi('Relays');

type RelayHealth = z.input<typeof relaysSchema>['relays'][number];
type Lag = Awaited<ReturnType<DeliveryOperator['lag']>>;

/** Serves the health of the configured relays, apart from readiness: while a broker is down, requests are served all the same. */
export function relayHealthRoute(
  app: WalletApp,
  { databases, relays }: { readonly databases: DatabaseRegistry; readonly relays: readonly ServedRelay[] },
): void {
  const operator = new DeliveryOperator(databases);
  // Shared among all callers at the same time, because each query scans the log after the cursors.
  let running: Promise<Lag> | undefined;
  const lag = (): Promise<Lag> => {
    running ??= operator.lag().finally(() => (running = undefined));
    return running;
  };
  serve(
    app,
    {
      method: 'get',
      path: '/health/relay',
      tag: 'Health',
      summary: 'See how far the relays to brokers are',
      description:
        'The status is 200 even while a broker is down, because no other request depends on the broker.',
      answers: { 200: 'The state of each relay' },
      answer: relaysSchema,
      problems: [],
    },
    async () => {
      const answers = await lag();
      return { body: { relays: relays.map((relay) => healthOf(relay, answers)) } };
    },
  );
}

function healthOf({ name, aliases, state }: ServedRelay, { items, failures }: Lag): RelayHealth {
  const own = items.filter(({ handler }) => handler === name || aliases.includes(handler));
  const unknownOn = failures.flatMap(({ shards }) => shards.map(({ group, member }) => `${group}/${member}`));
  // Without a place in any log it has no lag either, and nobody would notice that it is missing.
  const isNowhere = own.length === 0 && unknownOn.length === 0;
  const absent = { kind: isNowhere ? ('nowhere' as const) : ('elsewhere' as const), lastError: undefined };
  const { kind, lastError } = state() ?? absent;
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
    ...(lastError && { lastErrorDate: lastError.date.toISOString() }),
    ...(unknownOn.length > 0 && { unknownOn }),
  };
}
