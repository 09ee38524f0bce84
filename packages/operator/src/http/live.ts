import { ProblemError, type Route, route } from '@framework/http';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';

import type { Operator } from '../operator.js';
import { consumerSchema, deadLetterSchema, listOf, pageOf, shardsSchema } from './answer-schemas.js';

const mediaType = 'text/event-stream';
/** The time between two snapshots, in milliseconds. */
const intervalDefaultMs = 2_000;
/** How many requests may listen at the same time. */
const listenersMax = 16;

const snapshotSchema = z
  .object({
    date: z.iso.datetime().meta({ description: "When it was read, by the process's clock" }),
    consumers: listOf(consumerSchema),
    deadLetters: pageOf(deadLetterSchema),
    shards: listOf(shardsSchema),
  })
  .meta({ id: 'Snapshot', description: 'How delivery is, as the operations of the same names answer it' });

/** What all listeners see at one time. */
interface Snapshot {
  readonly number: number;
  /** As JSON. */
  readonly text: string;
  readonly readMs: number;
}

interface LiveOptions {
  readonly closing?: AbortSignal | undefined;
  readonly onError?: (error: unknown) => void;
  /** The time between two snapshots. Default 2,000. */
  readonly intervalMs?: number;
}

/** The stream of snapshots; it ends for all listeners with the signal. */
export function liveRoute(operator: Operator, options: LiveOptions): Route {
  const { closing, onError, intervalMs = intervalDefaultMs } = options;
  const feed = new LiveFeed(operator, intervalMs);
  let listenerCount = 0;
  return route.get(
    '/live',
    {
      tag: 'Delivery',
      summary: 'A snapshot of consumers, dead letters and databases, every two seconds',
      description: `Server-sent events named \`snapshot\`, whose data is JSON. At most ${listenersMax} requests may listen at the same time.`,
      answer: snapshotSchema,
      mediaType,
      problems: ['closing', 'too-many-listeners', 'shard-unavailable'],
    },
    async ({ method, signal: signalOf }) => {
      const headers = { 'content-type': mediaType };
      // A stream without a reader would keep its place.
      if (method === 'HEAD') return new Response(null, { headers });
      if (closing?.aborted === true) throw new ProblemError('closing', 'The process is stopping');
      if (listenerCount >= listenersMax)
        throw new ProblemError('too-many-listeners', `At most ${listenersMax} may listen: try again later`);
      listenerCount++;
      const signal = signalOf();
      const left = new AbortController();
      const leave = (): void => {
        if (!left.signal.aborted) listenerCount--;
        left.abort();
        for (const end of [signal, closing]) end?.removeEventListener('abort', leave);
      };
      // At once: while a database hangs, a client that connects again and again would take place after place.
      for (const end of [signal, closing]) end?.addEventListener('abort', leave);
      try {
        const first = await feed.after(0);
        // The stream of a client that has left meanwhile would never be read to its end.
        if (left.signal.aborted) return new Response(null, { headers });
        return new Response(streamOf(first, { feed, left: left.signal, leave, onError }), { headers });
      } catch (error) {
        leave();
        throw error;
      }
    },
  );
}

/** The snapshots from the first one on, read as fast as the listener takes them. */
function streamOf(
  first: Snapshot,
  {
    feed,
    left,
    leave,
    onError,
  }: {
    readonly feed: LiveFeed;
    readonly left: AbortSignal;
    readonly leave: () => void;
    readonly onError: LiveOptions['onError'];
  },
): ReadableStream<Uint8Array> {
  let last = first;
  let isCancelled = false;
  return new ReadableStream({
    start: (controller) => {
      controller.enqueue(encoded(first));
      const close = (): void => {
        if (!isCancelled) controller.close();
      };
      left.addEventListener('abort', close, { once: true });
    },
    pull: async (controller) => {
      try {
        last = await feed.after(last.number);
        if (!left.aborted) controller.enqueue(encoded(last));
      } catch (error) {
        onError?.(error);
        leave();
      }
    },
    cancel: () => {
      isCancelled = true;
      leave();
    },
  });
}

function encoded({ number, text }: Snapshot): Uint8Array {
  return new TextEncoder().encode(`event: snapshot\nid: ${number}\ndata: ${text}\n\n`);
}

/** Queries the databases once for all waiting listeners, and not at all without a listener. */
class LiveFeed {
  readonly #operator: Operator;
  readonly #intervalMs: number;
  #latest: Snapshot = { number: 0, text: '', readMs: -Infinity };
  #next: Promise<Snapshot> | undefined;

  constructor(operator: Operator, intervalMs: number) {
    this.#operator = operator;
    this.#intervalMs = intervalMs;
  }

  /** The newest snapshot, but not before the one that follows the given one. */
  async after(number: number): Promise<Snapshot> {
    if (number < this.#latest.number && performance.now() - this.#latest.readMs < this.#intervalMs)
      return this.#latest;
    this.#next ??= this.#read().finally(() => (this.#next = undefined));
    return this.#next;
  }

  async #read(): Promise<Snapshot> {
    const { number, readMs } = this.#latest;
    await delay(Math.max(0, readMs + this.#intervalMs - performance.now()), undefined, { ref: false });
    const [consumers, deadLetters, shards] = await Promise.all([
      this.#operator.consumers(),
      this.#operator.deadLetters({}, { limit: 100 }),
      this.#operator.shards(),
    ]);
    const text = JSON.stringify({ date: new Date(), consumers, deadLetters, shards });
    this.#latest = { number: number + 1, text, readMs: performance.now() };
    return this.#latest;
  }
}
