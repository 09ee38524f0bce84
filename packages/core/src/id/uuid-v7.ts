import { v4, v7 } from 'uuid';

const random = new Uint8Array(16);
const words = new DataView(random.buffer);
let lastSource: IdSource | undefined;
let lastMs = -1;
let sequence = 0;

/**
 * Generates a UUID version 7 (RFC 9562) as lower-case text. Those of one process sort in the order in which they were generated.
 */
export function timeOrderedUuid(): string {
  if (lastSource !== currentIdSource()) {
    lastSource = currentIdSource();
    lastMs = -1;
  }
  lastSource.fillRandom(random);
  const nowMs = lastSource.nowMs();
  if (nowMs > lastMs) {
    lastMs = nowMs;
    // Starts in the lower half of the range, which leaves room to count up within the millisecond.
    sequence = words.getUint32(0) >>> 1;
  } else {
    sequence++;
  }
  return v7({ random, msecs: lastMs, seq: sequence });
}

/** Generates a random UUID version 4 (RFC 9562) as lower-case text. */
export function randomUuid(): string {
  currentIdSource().fillRandom(random);
  return v4({ random });
}

/** The source of time and randomness for ids. */
export interface IdSource {
  /** Milliseconds since 1970. */
  nowMs(): number;
  /** Fills the array, which has at most 4,096 bytes, with random bytes. */
  fillRandom(bytes: Uint8Array<ArrayBuffer>): void;
}

const poolBytes = 4_096;

const pool = new Uint8Array(poolBytes);
let usedCount = poolBytes;

/** The computer's clock and the platform's random generator. */
const systemIdSource: IdSource = {
  nowMs: () => Date.now(),
  // Draws many bytes at once: a call of the generator costs as much for a few bytes as for thousands.
  fillRandom(bytes) {
    if (usedCount + bytes.length > poolBytes) {
      crypto.getRandomValues(pool);
      usedCount = 0;
    }
    bytes.set(pool.subarray(usedCount, usedCount + bytes.length));
    // Used bytes are erased, so that nobody can read them from memory later.
    pool.fill(0, usedCount, usedCount + bytes.length);
    usedCount += bytes.length;
  },
};

let current = systemIdSource;

/** The current source of this process's ids. */
export function currentIdSource(): IdSource {
  return current;
}

/**
 * Makes all ids of this process come from another source, for tests and simulations that must be reproducible. The ids
 * are only as unique as the source is random, and their time is the source's.
 *
 * @returns a function that restores the previous source
 */
export function useIdSource(source: IdSource): () => void {
  const former = current;
  // A new object each time, so that counters restart even if the same source is used again.
  current = { nowMs: () => source.nowMs(), fillRandom: (bytes) => source.fillRandom(bytes) };
  return () => {
    current = former;
  };
}
