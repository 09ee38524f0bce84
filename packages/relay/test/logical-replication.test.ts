import { describe, expect, test } from 'vitest';

import { LogWriter, newLog, startRelay, streamingServer, streams } from './streamed.js';

const server = streamingServer();

describe('a relay with logical replication', () => {
  test('publishes what was committed before and after the stream began, in order', async () => {
    const url = await newLog(server());
    const writer = await LogWriter.connect(url);
    await writer.write('a', 1, 2, 3);
    const process = await startRelay(url);
    await streams(process);
    await writer.write('a', 4, 5, 6);
    await writer.write('b', 1);
    await expect.poll(() => process.broker.published).toHaveLength(7);
    expect(process.broker.firstVersions('a')).toEqual([1, 2, 3, 4, 5, 6]);
    expect(process.errors).toEqual([]);
    const latencies: number[] = [];
    for (let v = 7; v < 207; v++) {
      const done = Promise.withResolvers<void>();
      process.broker.onPublished = () => done.resolve();
      const startedMs = performance.now();
      await writer.write('a', v);
      await done.promise;
      latencies.push(performance.now() - startedMs);
    }
    latencies.sort((x, y) => x - y);
    console.log('p50', latencies[100], 'p99', latencies[198], await writer.slot(), process.publisher.state.sources);
  });
});
