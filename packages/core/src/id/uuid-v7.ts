import { v4, v7 } from 'uuid';

const random = new Uint8Array(16);
const words = new DataView(random.buffer);
let lastSource: IdSource | undefined;
let lastMs = -1;
let sequence = 0;

/** Makes a UUID version 7 (RFC 9562), as lower-case text; those of one process sort in the order in which they were made. */
export function timeOrderedUuid(): string {
  if (lastSource !== currentIdSource()) {
    lastSource = currentIdSource();
    lastMs = -1;
  }
  lastSource.fillRandom(random);
  const nowMs = lastSource.nowMs();
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

/** Where the time and the randomness of ids come from. */
export interface IdSource {
  /** Milliseconds since 1970. */
  nowMs(): number;
  /** Fills the array, of at most 4,096 bytes, with random ones. */
  fillRandom(bytes: Uint8Array<ArrayBuffer>): void;
}

const poolBytes = 4_096;

const pool = new Uint8Array(poolBytes);
let usedCount = poolBytes;

/** The computer's clock, and the platform's random generator. */
const systemIdSource: IdSource = {
  nowMs: () => Date.now(),
  // Many bytes are drawn at once: asking the generator costs as much for a few as for thousands.
  fillRandom(bytes) {
    if (usedCount + bytes.length > poolBytes) {
      crypto.getRandomValues(pool);
      usedCount = 0;
    }
    bytes.set(pool.subarray(usedCount, usedCount + bytes.length));
    // Nobody reads them twice, also not from memory.
    pool.fill(0, usedCount, usedCount + bytes.length);
    usedCount += bytes.length;
  },
};

let current = systemIdSource;

/** Where the ids of this process come from now. */
export function currentIdSource(): IdSource {
  return current;
}

/**
 * Lets all ids that this process makes come from another source, for tests and simulations that must go the same way twice.
 * They are as unique as the source is random, and count up from its own time.
 *
 * @returns what puts the former source back
 */
export function useIdSource(source: IdSource): () => void {
  const former = current;
  // A new object each time: what counts up begins anew, also with a source that was used before.
  current = { nowMs: () => source.nowMs(), fillRandom: (bytes) => source.fillRandom(bytes) };
  return () => {
    current = former;
  };
}
