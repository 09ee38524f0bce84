import type { RetainedLog } from '@framework/core/adapter';
import {
  ClosingClient,
  DatabaseSocket,
  type LogPlace,
  parsePlace,
  presentText,
} from '@framework/drizzle-adapter/log';
import pg from 'pg';
import pgLogicalReplication from 'pg-logical-replication';

import {
  LogStreamPlugin,
  type StreamedCommit,
  TransactionAssembler,
  formatLsn,
  parseLsn,
} from './pgoutput-rows.js';
import {
  type SlotSettings,
  StreamRefusedError,
  assertAvailable,
  assertStreamable,
  prepareSlot,
  retainedBy,
} from './replication-slot.js';

const { LogicalReplicationService } = pgLogicalReplication;

/** How long the server may take to connect or to answer. */
const answerTimeoutMs = 10_000;

/** Reads the server's run to which a connection leads. */
const historyQuery = {
  text: 'select eventlog.server_history() as history',
  query_timeout: answerTimeoutMs,
};

/** The form in which the server writes values, whatever is set for the role or the database. */
const sessionSettings =
  '-c datestyle=ISO,MDY -c timezone=UTC -c statement_timeout=0 -c idle_session_timeout=0';

/** What a session needs. */
export interface SessionOptions {
  readonly client: pg.ClientConfig;
  readonly settings: SlotSettings;
  readonly eventBytesMax: number;
  /** The history in which the database is at its own address; `undefined` if it is not known. */
  readonly history: string | undefined;
  /** Ends the opening. */
  readonly signal: AbortSignal;
  /** Called with what the server keeps for the slot, whether or not the stream can begin. */
  readonly onRetained: (retained: RetainedLog | undefined) => void;
  /** Called at the end of each transaction. */
  readonly onCommit: (commit: StreamedCommit) => void;
  /** Called once when the session can no longer be used. */
  readonly onEnded: (error: unknown) => void;
  /** Called with the reason when the slot had to be replaced. */
  readonly onRecreated: (reason: string) => void;
}

/**
 * One stream of the log from one server: a connection for replication, and one beside it for queries.
 *
 * It confirms only positions that {@link confirm} receives: the client's own confirmations would cover all that it has received.
 */
export class ReplicationSession {
  readonly #options: SessionOptions;
  readonly #side: pg.Client;
  readonly #service: InstanceType<typeof LogicalReplicationService>;
  /** The socket of the replication connection. */
  #socket: DatabaseSocket | undefined;
  #assembler: TransactionAssembler | undefined;
  #begunAt: Pick<LogPlace, 'epoch' | 'history'> = { epoch: 0, history: '' };
  /** Settles after the last query. */
  #queried: Promise<unknown> = Promise.resolve();
  #receivedLsn = 0n;
  #confirmedLsn = 0n;
  #hasEnded = false;
  readonly #started = Promise.withResolvers<void>();
  #heardMs = performance.now();

  private constructor(options: SessionOptions) {
    this.#options = options;
    const { client } = options;
    const common = {
      ...client,
      connectionTimeoutMillis: answerTimeoutMs,
      keepAlive: true,
      options: `${client.options ?? ''} ${sessionSettings}`.trim(),
    };
    // After the beginning of the stream, no caller waits for it.
    this.#started.promise.catch(() => undefined);
    this.#side = new ClosingClient({ ...common, query_timeout: answerTimeoutMs });
    this.#side.on('error', (error) => this.#end(error));
    const stream = (): DatabaseSocket => (this.#socket = new DatabaseSocket());
    this.#service = new LogicalReplicationService(
      { ...common, stream },
      { acknowledge: { auto: false, timeoutSeconds: 0 } },
    );
    this.#service.on('error', (error) => this.#end(refusal(error, options.settings.slot)));
    this.#service.on('data', (_lsn, message) => this.#take(message));
    this.#service.on('heartbeat', (lsn, _time, mustAnswer) => this.#hear(lsn, mustAnswer));
  }

  /**
   * Begins to stream from where the slot was last confirmed.
   *
   * @throws StreamRefusedError when the log cannot be streamed from this server now, or what the server answers
   */
  static async open(options: SessionOptions): Promise<ReplicationSession> {
    const session = new ReplicationSession(options);
    const onAborted = (): void => void session.close();
    options.signal.addEventListener('abort', onAborted);
    try {
      options.signal.throwIfAborted();
      await session.#open();
      return session;
    } catch (error) {
      await session.close();
      throw error;
    } finally {
      options.signal.removeEventListener('abort', onAborted);
    }
  }

  /** The epoch of the events that it delivers, and the history in which the stream began. */
  get begunAt(): Pick<LogPlace, 'epoch' | 'history'> {
    return this.#begunAt;
  }

  /** Up to where the stream has delivered everything. */
  get receivedLsn(): bigint {
    return this.#receivedLsn;
  }

  /** Up to where the server need not keep its write-ahead log. */
  get confirmedLsn(): bigint {
    return this.#confirmedLsn;
  }

  /** The time since the last message of the server, in milliseconds. */
  get silentMs(): number {
    return performance.now() - this.#heardMs;
  }

  /** The present state of the log, as readers with SQL see it. */
  async place(): Promise<LogPlace> {
    const { rows } = await this.#query((side) =>
      side.query<{ place: string }>(`select ${presentText} as place`),
    );
    return parsePlace(rows[0]?.place ?? '');
  }

  /** The server's flushed LSN: a stream that is not behind has delivered it. */
  async flushedLsn(): Promise<bigint> {
    const { rows } = await this.#query((side) =>
      side.query<{ lsn: string }>('select pg_current_wal_flush_lsn()::text as lsn'),
    );
    return parseLsn(rows[0]?.lsn ?? null);
  }

  /** Assigns a transaction number: whatever gets a higher one is committed from now on. */
  async newXid(): Promise<bigint> {
    const { rows } = await this.#query((side) =>
      side.query<{ xid: string }>('select pg_current_xact_id()::text as xid'),
    );
    const [{ xid }] = rows as [{ readonly xid: string }];
    return BigInt(xid);
  }

  /**
   * Checks that the log can still be streamed, with all events.
   *
   * @throws StreamRefusedError when the publication, or a setting of the server, has changed
   */
  async assertStreamable(): Promise<void> {
    await this.#query((side) => assertStreamable(side, this.#options.settings.publication));
  }

  /** What the server keeps for the slot. */
  async retained(): Promise<RetainedLog | undefined> {
    return this.#query((side) => retainedBy(side, this.#options.settings.slot));
  }

  /** Confirms to the server up to where the write-ahead log is no longer needed, and requests an answer. */
  confirm(lsn: bigint): void {
    if (lsn > this.#confirmedLsn) this.#confirmedLsn = lsn;
    this.#answer(true);
  }

  /** Ends the session because of an error. */
  fail(error: unknown): void {
    this.#end(error);
  }

  /** Disconnects. */
  async close(): Promise<void> {
    this.#hasEnded = true;
    this.#started.reject(new Error('The session was closed'));
    const stopped = this.#service.stop().catch(() => undefined);
    // A connection that is not open yet would wait for a silent server.
    this.#socket?.destroy();
    await Promise.all([stopped, this.#side.end().catch(() => undefined)]);
  }

  async #open(): Promise<void> {
    const { settings, history, eventBytesMax, onRetained } = this.#options;
    await this.#side.connect();
    const place = await this.place();
    if (history !== undefined && place.history !== history)
      throw new StreamRefusedError(
        'The address of the stream does not lead to this database, or the server has just restarted',
      );
    this.#begunAt = place;
    this.#assembler = new TransactionAssembler(place.epoch, eventBytesMax);
    onRetained(await this.retained());
    // The server may refuse the connection without these reasons.
    await this.#query((side) => assertAvailable(side, settings.slot));
    const plugin = new LogStreamPlugin(settings.publication, (client) => this.#prepare(client));
    this.#service.on('start', () => this.#started.resolve());
    this.#service.subscribe(plugin, settings.slot, '0/0').then(
      () => this.#end(new Error('The server has ended the stream')),
      (error: unknown) => this.#end(refusal(error, settings.slot)),
    );
    await this.#started.promise;
  }

  /**
   * Prepares the slot once there is a connection that can stream it: the server would keep its write-ahead log for ever for a slot that
   * nothing streams.
   */
  async #prepare(client: pg.Client): Promise<void> {
    const { settings, onRecreated } = this.#options;
    const { rows } = await client.query<{ history: string }>(historyQuery);
    if (rows[0]?.history !== this.#begunAt.history)
      throw new StreamRefusedError('The address leads to several servers, or the server has just restarted');
    this.#confirmedLsn = parseLsn(await this.#query((side) => prepareSlot(side, settings, onRecreated)));
    this.#receivedLsn = this.#confirmedLsn;
    const silence = new Error(`The server did not begin to stream within ${answerTimeoutMs} ms`);
    const deadline = setTimeout(() => this.#started.reject(silence), answerTimeoutMs);
    const onAnswered = (): void => clearTimeout(deadline);
    this.#started.promise.then(onAnswered, onAnswered);
  }

  /** Queries the second connection after the queries before: `pg` takes one statement at a time. */
  #query<Answer>(send: (side: pg.Client) => Promise<Answer>): Promise<Answer> {
    const answer = this.#queried.then(() => send(this.#side));
    this.#queried = answer.catch(() => undefined);
    return answer;
  }

  #take(message: Parameters<TransactionAssembler['take']>[0]): void {
    if (this.#hasEnded) return;
    this.#heardMs = performance.now();
    try {
      const commit = this.#assembler?.take(message);
      if (commit === undefined) return;
      this.#receive(commit.endLsn);
      this.#options.onCommit(commit);
    } catch (error) {
      this.#end(error);
    }
  }

  /** The position of a message of the server itself: everything before it has been sent. */
  #hear(lsn: string, mustAnswer: boolean): void {
    if (this.#hasEnded) return;
    this.#heardMs = performance.now();
    this.#receive(parseLsn(lsn));
    if (mustAnswer) this.#answer(false);
  }

  #receive(lsn: bigint): void {
    if (lsn > this.#receivedLsn) this.#receivedLsn = lsn;
  }

  /** The service reports the position after the one that it is given. */
  #answer(ping: boolean): void {
    if (this.#hasEnded) return;
    void this.#service
      .acknowledge(formatLsn(this.#confirmedLsn - 1n), ping)
      .catch((error: unknown) => this.#end(error));
  }

  #end(error: unknown): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#started.reject(error);
    this.#options.onEnded(error);
  }
}

const objectInUse = '55006';
const undefinedObject = '42704';
/** By SQLSTATE. */
const remedies: Readonly<Record<string, string>> = {
  '42501': ': give the role the attribute REPLICATION',
  '53300': ': increase max_wal_senders or max_connections, and restart the server',
};

function refusal(error: unknown, slot: string): unknown {
  if (!(error instanceof pg.DatabaseError)) return error;
  const { code = '', message } = error;
  if (code === objectInUse) return new StreamRefusedError(message, { isTaken: true, cause: error });
  const remedy = remedies[code] ?? '';
  return new StreamRefusedError(`The server refuses to stream ${slot} (${message})${remedy}`, {
    // Before PostgreSQL 18, a stream fails at each event that is older than its publication.
    isSlotOutdated: code === undefinedObject,
    cause: error,
  });
}
