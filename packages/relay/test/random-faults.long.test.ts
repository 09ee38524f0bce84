import { test } from 'vitest';

import { relayUnderRandomFaults } from './random-faults.js';
import { streamingServer } from './streamed.js';

const server = streamingServer();

test('a relay publishes every committed version in order during hundreds of random faults', () =>
  relayUnderRandomFaults(server(), 500));
