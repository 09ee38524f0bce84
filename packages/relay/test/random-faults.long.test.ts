import { expect, test } from 'vitest';

import { relayUnderRandomFaults } from './random-faults.js';
import { streamingServer } from './streamed.js';

const server = streamingServer();

test('a relay publishes every committed version in order during hundreds of random faults', async () => {
  expect(await relayUnderRandomFaults(server(), 500)).toBeGreaterThan(0);
});
