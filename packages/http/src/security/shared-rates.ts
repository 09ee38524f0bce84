import { hash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool, QueryConfig, QueryResult } from 'pg';
import {
  RLWrapperTimeouts,
  RateLimiterPostgres,
  RateLimiterRedis,
  RateLimiterRes,
} from 'rate-limiter-flexible';

import { type RateCounter, type RateCounterFactory, inMemory } from './rate-limits.js';

/** The URL of the store in which several processes count together; its client, `redis` or `pg`, is an optional peer dependency. */
export type RateStoreSettings = { readonly redis: string } | { readonly postgresql: string };

/** The time that the store has for an answer, in milliseconds. */
const answerTimeoutMs = 250;
/** The time for which each process counts alone after the store has failed, in milliseconds. */
const outageMs = 1_000;
const connectionsMax = 4;
const table = 'rate_limits';

/** The counters of several processes in one store. */
export interface SharedRates {
  /** Creates a counter, for the constructor of `RateLimits`. */
  readonly counter: RateCounterFactory;
  /** Disconnects from the store. */
  readonly close: () => Promise<void>;
}

/** The options of {@link openSharedRates}. */
export interface SharedRatesOptions {
  /** The name of the service in the store's list of connections. */
  readonly applicationName: string;
  /** Called with the reason at the beginning of an outage. */
  readonly onOutage: (error: unknown) => void;
}

/**
 * Opens the store in which several processes count together. It does not wait for the store: during an outage, each process counts
 * alone, so that a client may send its rate to each of them.
 *
 * In PostgreSQL, the counts are in the table `rate_limits`, which is created if it is missing.
 */
export async function openSharedRates(
  settings: RateStoreSettings,
  { applicationName, onOutage }: SharedRatesOptions,
): Promise<SharedRates> {
  const store =
    'redis' in settings
      ? await redisStore(settings.redis)
      : await postgresStore(settings.postgresql, applicationName);
  const outage = new Outage(onOutage);
  return {
    counter: (subject, limit) => {
      const limiter = store.limiter({
        keyPrefix: `rate-${subject}`,
        points: limit.requests,
        duration: limit.seconds,
        // No further queries to the store about a client that has reached its limit.
        inMemoryBlockOnConsumed: limit.requests,
      });
      const shared = new RLWrapperTimeouts({ limiter, timeoutMs: answerTimeoutMs });
      return new SharedCounter(shared, inMemory(subject, limit), outage);
    },
    close: store.close,
  };
}

type LimiterOptions = Omit<ConstructorParameters<typeof RateLimiterRedis>[0], 'storeClient'>;

interface Store {
  readonly limiter: (options: LimiterOptions) => RateLimiterPostgres | RateLimiterRedis;
  readonly close: () => Promise<void>;
}

async function redisStore(url: string): Promise<Store> {
  // Imported here because a service that counts alone does not need it, as is `pg`.
  const { createClient } = await import('redis');
  const client = createClient({
    url,
    disableOfflineQueue: true,
    socket: { connectTimeout: answerTimeoutMs * 4 },
  });
  // Every command fails while there is no connection, which is reported as an outage.
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
    limiter: (options) =>
      new RateLimiterRedis({
        ...options,
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

async function postgresStore(url: string, applicationName: string): Promise<Store> {
  const { default: pg } = await import('pg');
  const pool = new pg.Pool({
    connectionString: url,
    max: connectionsMax,
    connectionTimeoutMillis: answerTimeoutMs,
    query_timeout: answerTimeoutMs,
    application_name: `${applicationName} rate limits`,
  });
  // A connection that was idle has ended; the next query opens another one.
  pool.on('error', () => undefined);
  let isCreated = false;
  const query = async (text: QueryConfig): Promise<QueryResult> => {
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
    limiter: (options) =>
      new RateLimiterPostgres({
        ...options,
        storeClient: { query },
        storeType: 'pool',
        tableName: table,
        tableCreated: true,
      }),
    close: () => pool.end(),
  };
}

/** Creates the table unless it exists: the role of the service may lack the privilege to create one, or to try. */
async function createTable(pool: Pool): Promise<void> {
  const { rows } = await pool.query<{ exists: boolean }>('select to_regclass($1) is not null as exists', [
    table,
  ]);
  if (rows[0]?.exists === true) return;
  await pool.query(
    `create unlogged table if not exists ${table} (key varchar(255) primary key, points integer not null default 0, expire bigint)`,
  );
}

/** The outages of the store, which its counters have in common. */
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

/** The longest key that is stored as it is, in characters: the keys of the table have at most 255. Longer ones are hashed. */
const keyCharactersMax = 200;

/** Counts in the store, and during an outage in the memory of this process. */
class SharedCounter implements RateCounter {
  readonly #shared: RateCounter;
  readonly #own: RateCounter;
  readonly #outage: Outage;

  constructor(shared: RateCounter, own: RateCounter, outage: Outage) {
    this.#shared = shared;
    this.#own = own;
    this.#outage = outage;
  }

  async consume(key: string): Promise<unknown> {
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
  return key.length <= keyCharactersMax ? key : hash('sha256', key, 'base64url');
}
