import type { RetainedLog } from '@framework/core/adapter';
import pg from 'pg';
import pgLogicalReplication from 'pg-logical-replication';

import { ClosingClient } from '../connection/client.js';
import { type LogPlace, parsePlace, presentText } from '../delivery/log-place.js';
import {
  LogStreamPlugin,
  type StreamedCommit,
  TransactionAssembler,
  formatLsn,
  parseLsn,
} from './pgoutput-rows.js';
import { type SlotSettings, StreamRefusedError, prepareSlot, retainedBy } from './replication-slot.js';

const { LogicalReplicationService } = pgLogicalReplication;

/** How long the server may take to connect or to answer. */
const answerTimeoutMs = 10_000;

/** The form in which the server writes values, whatever is set for the role or the database. */
const sessionSettings =
  '-c datestyle=ISO,MDY -c timezone=UTC -c statement_timeout=0 -c idle_session_timeout=0';

/** What a session needs. */
export interface SessionOptions {
  readonly client: pg.ClientConfig;
  readonly settings: SlotSettings;
  readonly eventBytesMax: number;
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
 * One stream of the log from one server: a connection for replication, and one beside it for questions.
 *
 * It confirms only what it is told to. The client could confirm by itself, but would then confirm what it has received.
 */
export class ReplicationSession {
  readonly #options: SessionOptions;
  readonly #side: pg.Client;
  readonly #service: InstanceType<typeof LogicalReplicationService>;
  #assembler: TransactionAssembler | undefined;
  #begunAt: Pick<LogPlace, 'epoch' | 'history'> = { epoch: 0, history: '' };
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
    // Nobody waits for it once the stream has begun.
    this.#started.promise.catch(() => undefined);
    this.#side = new ClosingClient({ ...common, query_timeout: answerTimeoutMs });
    this.#side.on('error', (error) => this.#end(error));
    this.#service = new LogicalReplicationService(common, {
      acknowledge: { auto: false, timeoutSeconds: 0 },
    });
    this.#service.on('error', (error) => this.#end(error));
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

  /** How long nothing has been heard from the server, in milliseconds. */
  get silentMs(): number {
    return performance.now() - this.#heardMs;
  }

  /** The present state of the log, as readers with SQL see it. */
  async place(): Promise<LogPlace> {
    const { rows } = await this.#side.query<{ place: string }>(`select ${presentText} as place`);
    return parsePlace(rows[0]?.place ?? '');
  }

  /** Assigns a transaction number: whatever gets a higher one is committed from now on. */
  async newXid(): Promise<bigint> {
    const { rows } = await this.#side.query<{ xid: string }>('select pg_current_xact_id()::text as xid');
    const [{ xid }] = rows as [{ readonly xid: string }];
    return BigInt(xid);
  }

  /** What the server keeps for the slot. */
  async retained(): Promise<RetainedLog | undefined> {
    return retainedBy(this.#side, this.#options.settings.slot);
  }

  /** Tells the server up to where the write-ahead log is no longer needed, and asks it for an answer. */
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
    await Promise.all([this.#service.stop().catch(() => undefined), this.#side.end().catch(() => undefined)]);
  }

  async #open(): Promise<void> {
    const { settings, eventBytesMax, onRecreated, onRetained } = this.#options;
    await this.#side.connect();
    onRetained(await this.retained());
    this.#confirmedLsn = parseLsn(await prepareSlot(this.#side, settings, onRecreated));
    this.#receivedLsn = this.#confirmedLsn;
    const place = await this.place();
    this.#begunAt = place;
    this.#assembler = new TransactionAssembler(place.epoch, eventBytesMax);
    const plugin = new LogStreamPlugin(settings.publication);
    this.#service.on('start', () => this.#started.resolve());
    this.#service.subscribe(plugin, settings.slot, '0/0').then(
      () => this.#end(new Error('The server has ended the stream')),
      (error: unknown) => this.#end(refusal(error, settings.slot)),
    );
    const silence = new Error(`The server did not begin to stream within ${answerTimeoutMs} ms`);
    const deadline = setTimeout(() => this.#started.reject(silence), answerTimeoutMs);
    await this.#started.promise.finally(() => clearTimeout(deadline));
    if (plugin.history !== place.history)
      throw new StreamRefusedError('The address leads to several servers, or the server has just restarted');
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
const noRight = '42501';

function refusal(error: unknown, slot: string): unknown {
  if (!(error instanceof pg.DatabaseError)) return error;
  const { code, message } = error;
  if (code === objectInUse) return new StreamRefusedError(message, { isTaken: true, cause: error });
  const remedy = code === noRight ? ': give the role the attribute REPLICATION' : '';
  return new StreamRefusedError(`The server refuses to stream ${slot} (${message})${remedy}`, {
    cause: error,
  });
}
