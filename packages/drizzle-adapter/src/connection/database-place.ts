import {
  type DatabaseConfig,
  type ShardIdentifier,
  ShardUnavailableException,
  databasePlace,
} from '@framework/core';
import { notReadyError } from './not-ready-error.js';

/** What the driver's pool says when all its connections are lent. */
const exhausted = /timeout exceeded/i;

/** The names of a database's shards, and where it is: for errors that say where they happened. */
export class DatabasePlace {
  readonly #config: DatabaseConfig;
  readonly #names = new Map<ShardIdentifier, string>();

  constructor(config: DatabaseConfig) {
    this.#config = config;
  }

  /** Remembers that the database holds a shard. */
  add(shard: ShardIdentifier, name: string): void {
    this.#names.set(shard, name);
  }

  /** Of one of its shards, such as `mexico-1 on db-2:5432/mexico`. */
  of(shard: ShardIdentifier): string {
    return `${this.#names.get(shard) ?? ''} on ${databasePlace(this.#config.address)}`.trimStart();
  }

  /** All of its shards, such as `shard (1, 0) mexico-1 on db-2:5432/mexico`. */
  toString(): string {
    const shards = [...this.#names].map(([shard, name]) => `${shard.toString()} ${name}`);
    return `${shards.join(', ')} on ${databasePlace(this.#config.address)}`;
  }

  /** What a caller gets for whom no connection could be had. */
  unavailable(shard: ShardIdentifier, cause: unknown): ShardUnavailableException {
    const place = this.of(shard);
    // Of a connection that several callers wait for.
    if (cause instanceof ShardUnavailableException) {
      const { reason, kind } = cause;
      return new ShardUnavailableException(shard, reason, { place, kind, cause: cause.cause });
    }
    if (isExhausted(cause)) {
      const waitedMs = this.#config.acquisitionTimeoutMs;
      const reason = `no connection was free within ${waitedMs} ms: find in pg_stat_activity what they wait for, unless the server does not answer at all`;
      return new ShardUnavailableException(shard, reason, { place, cause });
    }
    const reason = notReadyError(cause, this.#config);
    return new ShardUnavailableException(shard, reason.message, {
      place,
      kind: reason.kind,
      cause: reason.cause,
    });
  }
}

/** Whether all connections of a pool were lent for as long as a caller waits. */
export function isExhausted(error: unknown): boolean {
  return error instanceof Error && exhausted.test(error.message);
}
