import { type OpenAPIHono, createRoute, z } from '@hono/zod-openapi';
import { streamSSE } from 'hono/streaming';
import { setTimeout as delay } from 'node:timers/promises';

import type { Operator } from '../operator.js';
import { consumerSchema, deadLetterSchema, listOf, pageOf, shardsSchema } from './answer-schemas.js';
import { RequestProblem, problemMediaType, problemSchema, problemTitles } from './problems.js';

/** The time between two snapshots, in milliseconds. */
const intervalDefaultMs = 2_000;
/** How many requests may listen at the same time. */
const listenersMax = 16;

const snapshotSchema = z
  .object({
    date: z.iso.datetime().openapi({ description: "When it was read, by the process's clock" }),
    consumers: listOf(consumerSchema),
    deadLetters: pageOf(deadLetterSchema),
    shards: listOf(shardsSchema),
  })
  .openapi('Snapshot', { description: 'How delivery is, as the operations of the same names answer it' });

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

/** Adds the stream of snapshots; it ends for everybody with the signal. */
export function liveOperation(app: OpenAPIHono, operator: Operator, options: LiveOptions): void {
  const { closing, onError, intervalMs = intervalDefaultMs } = options;
  const problem = { [problemMediaType]: { schema: problemSchema } };
  const statuses = [401, 500, 503] as const;
  app.openAPIRegistry.registerPath(
    createRoute({
      method: 'get',
      path: '/live',
      tags: ['Delivery'],
      summary: 'A snapshot of consumers, dead letters and databases, every two seconds',
      description: `Server-sent events named \`snapshot\`, whose data is JSON. At most ${listenersMax} requests may listen at the same time.`,
      security: [{ token: [] }],
      responses: {
        200: { description: 'The stream', content: { 'text/event-stream': { schema: snapshotSchema } } },
        ...Object.fromEntries(
          statuses.map((status) => [status, { description: problemTitles[status], content: problem }]),
        ),
      },
    }),
  );
  const feed = new LiveFeed(operator, intervalMs);
  let listenerCount = 0;
  app.get('/live', async (context) => {
    // Without a body, nobody would read what is written, and its place would never become free.
    if (context.req.method === 'HEAD')
      return context.body(null, 200, { 'content-type': 'text/event-stream' });
    if (closing?.aborted === true) throw new RequestProblem(503, 'closing', 'The process is stopping');
    if (listenerCount >= listenersMax)
      throw new RequestProblem(
        503,
        'too-many-listeners',
        `At most ${listenersMax} may listen: try again later`,
      );
    listenerCount++;
    let isListening = true;
    const { signal } = context.req.raw;
    const leave = (): void => {
      if (isListening) listenerCount--;
      isListening = false;
      signal.removeEventListener('abort', leave);
    };
    // At once: while a database hangs, a client that connects again and again would take place after place.
    signal.addEventListener('abort', leave);
    try {
      const first = await feed.after(0);
      // The stream of a client that has left meanwhile would never be read to its end.
      if (signal.aborted) return context.body(null);
      return streamSSE(context, async (stream) => {
        const close = (): void => stream.abort();
        stream.onAbort(leave);
        for (const end of [signal, closing]) end?.addEventListener('abort', close);
        try {
          for (let next = first; !stream.aborted; next = await feed.after(next.number))
            await stream.writeSSE({ event: 'snapshot', id: `${next.number}`, data: next.text });
        } catch (error) {
          onError?.(error);
        } finally {
          for (const end of [signal, closing]) end?.removeEventListener('abort', close);
          leave();
        }
      });
    } catch (error) {
      leave();
      throw error;
    }
  });
}

/** Asks the databases once for everybody who waits, and not at all while nobody does. */
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
