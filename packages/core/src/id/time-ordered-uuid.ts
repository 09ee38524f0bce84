import { v7 } from 'uuid';
import { fillRandom } from './random-pool.js';

const random = new Uint8Array(16);
const words = new DataView(random.buffer);
let lastMs = -1;
let sequence = 0;

/** Makes a UUID version 7 (RFC 9562), as lower-case text; those of one process sort in the order in which they were made. */
export function timeOrderedUuid(): string {
  fillRandom(random);
  const nowMs = Date.now();
  if (nowMs > lastMs) {
    lastMs = nowMs;
    // Half of the range is left to count up within the millisecond.
    sequence = words.getUint32(0) >>> 1;
  } else {
    sequence++;
  }
  return v7({ random, msecs: lastMs, seq: sequence });
}
