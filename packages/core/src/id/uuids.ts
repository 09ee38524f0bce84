import { v4, v7 } from 'uuid';
import { type IdSource, currentIdSource } from './id-source.js';

const random = new Uint8Array(16);
const words = new DataView(random.buffer);
let source: IdSource | undefined;
let lastMs = -1;
let sequence = 0;

/** Makes a UUID version 7 (RFC 9562), as lower-case text; those of one process sort in the order in which they were made. */
export function timeOrderedUuid(): string {
  if (source !== currentIdSource()) {
    source = currentIdSource();
    lastMs = -1;
  }
  source.fillRandom(random);
  const nowMs = source.nowMs();
  if (nowMs > lastMs) {
    lastMs = nowMs;
    // Half of the range is left to count up within the millisecond.
    sequence = words.getUint32(0) >>> 1;
  } else {
    sequence++;
  }
  return v7({ random, msecs: lastMs, seq: sequence });
}

/** Makes a UUID version 4 (RFC 9562), as lower-case text: random in every bit. */
export function randomUuid(): string {
  currentIdSource().fillRandom(random);
  return v4({ random });
}
