import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import {
  RLWrapperTimeouts,
  RateLimiterPostgres,
  RateLimiterRedis,
  RateLimiterRes,
} from 'rate-limiter-flexible';

import { type RateCounter, type RateLimit, type RateSubject, inMemory } from './rate-limits.js';

/** The URL of the store in which several processes count together. */
export type RateStoreSettings = { readonly redis: string } | { readonly postgresql: string };

/** How long the store may take to answer, in milliseconds. */
const answerTimeoutMs = 250;
/** How long each process counts alone after the store has failed, in milliseconds. */
const outageMs = 1_000;
const connectionsMax = 4;
const table = 'rate_limits';

/** A store in which several processes count together. */
export interface SharedRates {
  readonly counter: (subject: RateSubject, limit: RateLimit) => RateCounter;
  readonly close: () => Promise<void>;
}

/**
 * Opens the store in which several processes count together. It does not wait for the store: while that cannot be used, each process
 * counts alone, so that a client may send its rate to each of them.
 *
 * @param onOutage called with the reason at the beginning of an outage
 */
export async function openSharedRates(
  settings: RateStoreSettings,
  onOutage: (error: unknown) => void,
): Promise<SharedRates> {
  const store = 'redis' in settings ? await redisStore(settings.redis) : postgresStore(settings.postgresql);
  const outage = new Outage(onOutage);
  return {
    counter: (subject, limit) => {
      const limiter = new RLWrapperTimeouts({
        limiter: store.limiter(subject, limit),
        timeoutMs: answerTimeoutMs,
      });
      return new SharedCounter(limiter, inMemory(subject, limit), outage);
    },
    close: store.close,
  };
}

interface Store {
  readonly limiter: (subject: RateSubject, limit: RateLimit) => RateLimiterPostgres | RateLimiterRedis;
  readonly close: () => Promise<void>;
}

function limiterOptions(subject: RateSubject, { requests, seconds }: RateLimit) {
  return {
    keyPrefix: `rate-${subject}`,
    points: requests,
    duration: seconds,
    // The store is not asked again about a client that has reached its limit.
    inMemoryBlockOnConsumed: requests,
  };
}

async function redisStore(url: string): Promise<Store> {
  // Imported here because a service that counts alone does not need it.
  const { createClient } = await import('redis');
  const client = createClient({
    url,
    disableOfflineQueue: true,
    socket: { connectTimeout: answerTimeoutMs * 4 },
  });
  // Every command fails while there is no connection, which says the same.
  client.on('error', () => undefined);
  const closing = new AbortController();
  const connect = async (): Promise<void> => {
    // Resolves after any number of attempts; rejects when the server refuses the login, or has too many connections.
    while (!closing.signal.aborted && !client.isOpen) {
      await client.connect().catch(() => delay(outageMs, undefined, { ref: false }));
    }
  };
  await Promise.race([connect(), delay(answerTimeoutMs)]);
  return {
    limiter: (subject, limit) =>
      new RateLimiterRedis({
        ...limiterOptions(subject, limit),
        storeClient: client,
        useRedisPackage: true,
        rejectIfRedisNotReady: true,
      }),
    close: async () => {
      closing.abort();
      if (client.isOpen) client.destroy();
    },
  };
}

function postgresStore(url: string): Store {
  const pool = new pg.Pool({
    connectionString: url,
    max: connectionsMax,
    connectionTimeoutMillis: answerTimeoutMs,
    query_timeout: answerTimeoutMs,
    application_name: 'wallet-service rate limits',
  });
  // A connection that was idle has ended; the next query opens another one.
  pool.on('error', () => undefined);
  let isCreated = false;
  const query = async (text: pg.QueryConfig): Promise<pg.QueryResult> => {
    if (!isCreated) await createTable(pool);
    isCreated = true;
    try {
      return await pool.query(text);
    } catch (error) {
      // The table may have been dropped, or the database replaced.
      isCreated = false;
      throw error;
    }
  };
  return {
    limiter: (subject, limit) =>
      new RateLimiterPostgres({
        ...limiterOptions(subject, limit),
        storeClient: { query },
        storeType: 'pool',
        tableName: table,
        tableCreated: true,
      }),
    close: () => pool.end(),
  };
}

/** Creates the table unless it exists: the role of the service may lack the privilege to create one, or to try. */
async function createTable(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ exists: boolean }>('select to_regclass($1) is not null as exists', [
    table,
  ]);
  if (rows[0]?.exists === true) return;
  await pool.query(
    `create unlogged table if not exists ${table} (key varchar(255) primary key, points integer not null default 0, expire bigint)`,
  );
}

/** Whether the store has failed a moment ago; shared by the counters, which use the same store. */
class Outage {
  readonly #onBegin: (error: unknown) => void;
  #untilMs = -Infinity;
  #isReported = false;

  constructor(onBegin: (error: unknown) => void) {
    this.#onBegin = onBegin;
  }

  get lasts(): boolean {
    return performance.now() < this.#untilMs;
  }

  failed(error: unknown): void {
    this.#untilMs = performance.now() + outageMs;
    if (!this.#isReported) this.#onBegin(error);
    this.#isReported = true;
  }

  succeeded(): void {
    this.#isReported = false;
  }
}

/** Longer keys are replaced by their hash, because the table's keys have at most 255 characters. */
const keyCharactersMax = 200;

/** Counts in the store; in the memory of this process while the store cannot be used. */
class SharedCounter implements RateCounter {
  readonly #shared: RateCounter;
  readonly #own: RateCounter;
  readonly #outage: Outage;

  constructor(shared: RateCounter, own: RateCounter, outage: Outage) {
    this.#shared = shared;
    this.#own = own;
    this.#outage = outage;
  }

  async consume(key: string): Promise<RateLimiterRes> {
    if (this.#outage.lasts) return this.#own.consume(key);
    try {
      const counted = await this.#shared.consume(shortened(key));
      this.#outage.succeeded();
      return counted;
    } catch (error) {
      if (error instanceof RateLimiterRes) throw error;
      this.#outage.failed(error);
      return this.#own.consume(key);
    }
  }
}

function shortened(key: string): string {
  return key.length <= keyCharactersMax ? key : createHash('sha256').update(key).digest('base64url');
}
