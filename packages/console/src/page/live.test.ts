import { expect, onTestFinished, test, vi } from 'vitest';

import type { Snapshot } from './answers.js';

/** Follows snapshots that arrive as these pieces of text in UTF-8, until there is one. */
async function received(pieces: (bytes: Uint8Array) => Iterable<Uint8Array>, snapshot: object) {
  const bytes = new TextEncoder().encode(`event: snapshot\ndata: ${JSON.stringify(snapshot)}\n\n`);
  vi.stubGlobal('location', { origin: 'http://localhost', pathname: '/console/', hash: '' });
  vi.stubGlobal('sessionStorage', { getItem: () => 'token' });
  vi.stubGlobal('addEventListener', () => undefined);
  vi.stubGlobal('removeEventListener', () => undefined);
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      for (const piece of pieces(bytes)) controller.enqueue(piece);
      controller.close();
    },
  });
  vi.stubGlobal('fetch', async () => new Response(body));
  onTestFinished(() => void vi.unstubAllGlobals());
  vi.resetModules();
  const live = await import('./live.js');
  const stop = new AbortController();
  const following = live.follow(stop.signal);
  await vi.waitFor(() => expect(live.snapshot.value).toBeDefined());
  stop.abort();
  await following;
  return live.snapshot.value;
}

const text = 'falló: é€👍';
const snapshot = {
  date: '2026-01-02T03:04:05.678Z',
  consumers: { items: [], failures: [{ shards: [text], code: 'shard-unavailable' }] },
} as unknown as Snapshot;

function* byteByByte(bytes: Uint8Array): Generator<Uint8Array> {
  for (const [index] of bytes.entries()) yield bytes.subarray(index, index + 1);
}

test.each([
  ['at once', (bytes: Uint8Array) => [bytes]],
  ['byte by byte, so that characters are divided', byteByByte],
])('a snapshot that arrives %s is shown as it was sent', async (_how, pieces) => {
  expect(await received(pieces, snapshot)).toEqual(snapshot);
});
