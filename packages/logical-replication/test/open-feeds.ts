import { type DatabaseRegistry, systemClock } from '@framework/core';
import type { EventSource } from '@framework/core/adapter';
import { onTestFinished } from 'vitest';

/** Opens the feeds of a handler from all databases, until the test is over. */
export function openFeeds(databases: DatabaseRegistry, source: EventSource): void {
  const feeds = databases.deliveries().map((delivery) =>
    source.open({
      ...delivery,
      handler: 'notify',
      clock: systemClock,
      eventBytesMax: 10_000,
      checkMs: 200,
      onCommitted: () => undefined,
      onError: () => undefined,
    }),
  );
  onTestFinished(() => Promise.all(feeds.map((feed) => feed.close())).then(() => undefined));
}
