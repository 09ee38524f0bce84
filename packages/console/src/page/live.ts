import { signal } from '@preact/signals';
import { createParser } from 'eventsource-parser';

import type { Consumer, Snapshot } from './answers.js';
import { parseExact } from './exact-json.js';
import { send } from './session.js';

/** How long charts reach back: half an hour of snapshots. */
const pointsMax = 900;
/** Snapshots come every two seconds: a connection that is silent for so long, in milliseconds, is given up. */
const silenceMaxMs = 10_000;
const pauseMinMs = 500;
const pauseMaxMs = 15_000;

/** The newest snapshot. */
export const snapshot = signal<Snapshot | undefined>(undefined);

/** Whether snapshots arrive; `undefined` before the first attempt has ended. */
export const isConnected = signal<boolean | undefined>(undefined);

/** How far a consumer was behind at one time, over all databases. */
export interface LagPoint {
  readonly seconds: number;
  readonly pendingCount: number;
  readonly oldestMs: number;
}

/** The points of each consumer since the page was opened, by permanent id. */
export const history: Map<string, readonly LagPoint[]> = new Map();

/** Reads snapshots until the signal says stop; reconnects after a silence, and after pauses that grow. */
export async function follow(stop: AbortSignal): Promise<void> {
  for (let pauseMs = pauseMinMs; !stop.aborted; pauseMs = Math.min(pauseMs * 2, pauseMaxMs)) {
    const silence = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const listen = (): void => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), silenceMaxMs);
    };
    listen();
    try {
      const response = await send('live', { signal: AbortSignal.any([stop, silence.signal]) });
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      const parser = createParser({
        onEvent: ({ event, data }) => {
          if (event !== 'snapshot') return;
          pauseMs = pauseMinMs;
          listen();
          take(parseExact(data) as Snapshot);
        },
      });
      // Not `for await`, which Safari does not have for streams.
      for (let read = await reader?.read(); read?.done === false; read = await reader?.read())
        parser.feed(read.value);
    } catch {
      // Whatever it was: it is tried again, and the page says that it is not connected.
    }
    clearTimeout(timer);
    if (stop.aborted) break;
    isConnected.value = false;
    await pause(pauseMs, stop);
  }
}

function take(next: Snapshot): void {
  for (const consumer of next.consumers.items) remember(consumer, Date.parse(next.date) / 1_000);
  snapshot.value = next;
  isConnected.value = true;
}

function remember({ handler, databases }: Consumer, seconds: number): void {
  const point = {
    seconds,
    pendingCount: databases.reduce((sum, { pendingCount }) => sum + pendingCount, 0),
    oldestMs: Math.max(0, ...databases.map(({ oldestPendingMs }) => oldestPendingMs)),
  };
  history.set(handler, [...(history.get(handler) ?? []).slice(1 - pointsMax), point]);
}

/** Ends early when the tab is shown or the network is back. */
function pause(milliseconds: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      removeEventListener('online', done);
      stop.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    addEventListener('online', done);
    stop.addEventListener('abort', done);
  });
}
