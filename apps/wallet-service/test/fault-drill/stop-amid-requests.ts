import assert from 'node:assert/strict';
import type { FaultHarness } from '../faults/fault-harness.js';
import { RawConnection } from '../raw-connection.js';

const head = 'POST /wallets HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n';
const halves = ['POST /wal', head, `${head}content-length: 14\r\n\r\n{"country":`];

/** Stops the service while it has received half of some requests: each is refused, and the process exits with 0. */
export async function stopAmidRequests(stage: FaultHarness): Promise<void> {
  const connections = await Promise.all(
    halves.map(async (half) => (await RawConnection.open(stage.client.url)).send(half)),
  );
  // Everything sent before has arrived when these requests are answered.
  for (let count = 0; count < 10; count++) await stage.client.get('/health/live');
  assert.equal(await stage.stopService(), 0);
  for (const connection of connections) {
    await connection.ended();
    assert.deepEqual(connection.statuses, [408]);
  }
}
