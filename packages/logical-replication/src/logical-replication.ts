import { InvariantViolationError, type ShardIdentifier } from '@framework/core';
import {
  type EventFeed,
  type EventSource,
  type EventSourceState,
  type OptionNames,
  type SourceTarget,
  refuseUnknownOptions,
} from '@framework/core/adapter';
import { clientConfigOf } from '@framework/drizzle-adapter/log';
import { createHash } from 'node:crypto';
import type pg from 'pg';
import { parseIntoClientConfig } from 'pg-connection-string';

import { ReplicationFeed } from './replication-feed.js';

/** How the log of a PostgreSQL database is streamed. */
export interface LogicalReplicationOptions {
  /**
   * Where to connect, as a role with the attribute `REPLICATION` that may read the schema `eventlog`; called for each database. It must
   * lead to the server itself, because a pooler cannot carry a stream. Default: the address and the role of the database.
   */
  readonly url?: (shards: readonly ShardIdentifier[]) => string;
  /** The name of the publication, which all handlers of a database can share. Default `framework_events`. */
  readonly publication?: string;
  /**
   * The name of the replication slot, which belongs to one handler in one database. Default: made of the handler's permanent id and
   * the name of the database.
   */
  readonly slot?: (shards: readonly ShardIdentifier[]) => string;
  /** Whether the publication and the slot are created when they are missing. Default true. */
  readonly create?: boolean;
}

const optionNames: OptionNames<LogicalReplicationOptions> = {
  url: true,
  publication: true,
  slot: true,
  create: true,
};

/**
 * Streams a handler's events from the write-ahead log of PostgreSQL, by logical replication, instead of polling for them.
 *
 * The server needs `wal_level = logical`, and a free replication slot for each handler. While it cannot be streamed, the log is read by
 * cursor, as without this source: `states` and `onError` of the delivery say why.
 *
 * @throws ConfigurationError `invalid-configuration` when an option is unknown
 */
export function logicalReplication(options: LogicalReplicationOptions = {}): EventSource {
  refuseUnknownOptions('logicalReplication.', optionNames, options);
  return new LogicalReplicationSource(options);
}

class LogicalReplicationSource implements EventSource {
  readonly #options: LogicalReplicationOptions;
  readonly #feeds = new Set<ReplicationFeed>();

  constructor(options: LogicalReplicationOptions) {
    this.#options = options;
  }

  get states(): readonly EventSourceState[] {
    return [...this.#feeds].map(({ state }) => state);
  }

  open(target: SourceTarget): EventFeed {
    const { url, publication = 'framework_events', slot, create = true } = this.#options;
    const { store, shards, handler } = target;
    const ownClient = clientConfigOf(store);
    if (ownClient === undefined) {
      throw new InvariantViolationError(
        `Handler ${handler} streams its events by logical replication: open its databases with postgres()`,
      );
    }
    const client = (): pg.ClientConfig => ({
      ...(url === undefined ? ownClient() : parseIntoClientConfig(url(shards))),
      application_name: `framework stream of ${handler}`,
    });
    const settings = {
      publication,
      slot: slot?.(shards) ?? slotName(handler, client().database ?? ''),
      create,
    };
    const feed = new ReplicationFeed(target, client, settings);
    this.#feeds.add(feed);
    return {
      log: feed.log,
      get isLive() {
        return feed.isLive;
      },
      close: async () => {
        await feed.close();
        this.#feeds.delete(feed);
      },
    };
  }
}

/** Slots belong to the server, not to the database: names of two databases must differ, and so must those of two handlers. */
function slotName(handler: string, database: string): string {
  const hash = createHash('sha256').update(`${handler}\0${database}`).digest('hex').slice(0, 8);
  const readable = handler
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '_')
    .slice(0, 40);
  return `framework_${readable}_${hash}`;
}
