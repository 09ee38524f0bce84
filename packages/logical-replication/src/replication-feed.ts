import type { Clock } from '@framework/core';
import {
  type Cursor,
  type EventBatch,
  type EventFeed,
  type EventSourceState,
  type SourceTarget,
  outsideRequests,
} from '@framework/core/adapter';
import { type LogPlace, parsePlace } from '@framework/drizzle-adapter/log';
import type pg from 'pg';

import { LogTail } from './log-tail.js';
import type { StreamedCommit } from './pgoutput-rows.js';
import { ReplicationSession } from './replication-session.js';
import { type SlotSettings, StreamRefusedError } from './replication-slot.js';

/** The time without any message after which a stream is ended. */
const silentMaxMs = 60_000;
/** The waits before the stream is tried again. */
const retryMinMs = 500;
const retryMaxMs = 5_000;
/** The waits for a commit to become visible, with synchronous replication for example. */
const visibleMinMs = 1;
const visibleMaxMs = 200;

/** The number of times that the lag of the stream is measured between two checks. */
const pollsPerCheck = 10;
const behindReason = 'The server is still decoding older parts of its write-ahead log';

/** How far a stream has come. */
export interface StreamProgress {
  /** Up to where it has delivered the write-ahead log. */
  readonly receivedLsn: bigint;
  /** Up to where the server need not keep it. */
  readonly confirmedLsn: bigint;
  /** Whether everything that has arrived can be read. */
  readonly isReleased: boolean;
}

/** Feeds one handler from the stream of one database, and from its log with SQL whenever the stream lacks the requested part. */
export class ReplicationFeed implements EventFeed {
  readonly log: EventFeed['log'] = {
    read: (slots, cursor, limit, bytesMax) => this.#read(slots, cursor, limit, bytesMax),
  };
  readonly #target: SourceTarget;
  readonly #clock: Clock;
  readonly #client: () => pg.ClientConfig;
  readonly #settings: SlotSettings;
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;
  #session: ReplicationSession | undefined;
  #tail: LogTail | undefined;
  /** Whether the server is still decoding what is older than the last poll: until it has, the tail lacks what was committed since. */
  #isBehind = true;
  /** Where the tail is valid. */
  #place: Pick<LogPlace, 'epoch' | 'history'> = { epoch: 0, history: '' };
  #state: EventSourceState;
  #reported: string | undefined;
  /** Whether the last stream has ended because its slot is of no use. */
  #isSlotOutdated = false;
  /** Whose commits are being released. */
  #releasing: ReplicationSession | undefined;
  /** Whose tail is being settled before the next check. */
  #settling: ReplicationSession | undefined;

  constructor(target: SourceTarget, client: () => pg.ClientConfig, settings: SlotSettings) {
    this.#target = target;
    this.#clock = target.clock;
    this.#client = client;
    this.#settings = settings;
    this.#state = {
      shards: target.shards,
      kind: 'by-cursor',
      reason: 'The stream is being opened',
      slot: undefined,
    };
    this.#running = outsideRequests(() => this.#run());
  }

  get state(): EventSourceState {
    return this.#state;
  }

  get isLive(): boolean {
    return !this.#isBehind && this.#tail?.isServing === true;
  }

  /** How far the stream has come; `undefined` without a stream. */
  get progress(): StreamProgress | undefined {
    const session = this.#session;
    if (session === undefined) return undefined;
    const { receivedLsn, confirmedLsn } = session;
    return { receivedLsn, confirmedLsn, isReleased: this.#tail?.isPending === false };
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#session?.close();
    await this.#running;
  }

  async #read(
    slots: readonly number[],
    cursor: Cursor,
    limit: number,
    bytesMax: number | undefined,
  ): Promise<EventBatch> {
    const tail = this.#tail;
    const read = this.#isBehind ? undefined : tail?.read(slots, cursor, limit);
    if (read !== undefined) return read;
    const check = tail?.check ?? 0;
    const batch = await this.#target.store.log.read(slots, cursor, limit, bytesMax);
    if (batch.partial !== true) tail?.adopt(batch.next, check);
    return batch;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    let waitMs = retryMinMs;
    // The target has the feed before it is called.
    await Promise.resolve();
    while (!signal.aborted) {
      const startedMs = this.#clock.elapsedMs();
      const error = await this.#stream().catch((failure: unknown) => failure);
      if (signal.aborted) return;
      this.#refused(error);
      if (this.#clock.elapsedMs() - startedMs > retryMaxMs) waitMs = retryMinMs;
      await this.#clock.sleep(waitMs, signal);
      waitMs = Math.min(waitMs * 2, retryMaxMs);
    }
  }

  /** Streams until the session ends; returns why. */
  async #stream(): Promise<unknown> {
    const { signal } = this.#closing;
    const ended = new AbortController();
    const onClosing = (): void => ended.abort();
    signal.addEventListener('abort', onClosing);
    let session: ReplicationSession | undefined;
    let reason: unknown;
    try {
      session = await ReplicationSession.open({
        client: this.#client(),
        history: await this.#history(),
        settings: { ...this.#settings, isSlotOutdated: this.#isSlotOutdated },
        eventBytesMax: this.#target.eventBytesMax,
        signal,
        onRetained: (slot) => (this.#state = { ...this.#state, slot }),
        onCommit: (commit) => this.#committed(commit),
        onEnded: (error) => {
          reason = error;
          ended.abort();
        },
        onRecreated: (why) => this.#target.onError(new Error(why)),
      });
      this.#session = session;
      await this.#begin(session, session.begunAt);
      const slot = await session.retained();
      this.#state = { ...this.#state, reason: behindReason, slot };
      await this.#follow(session, ended.signal);
      return reason;
    } finally {
      signal.removeEventListener('abort', onClosing);
      this.#tail = undefined;
      this.#session = undefined;
      this.#isBehind = true;
      await session?.close();
      // Whatever was to be read from the tail is read with SQL.
      this.#target.onCommitted();
    }
  }

  /** In which history the log is read with SQL. */
  async #history(): Promise<string | undefined> {
    const [known] = await this.#target.store.cursors.load([0]);
    return known && parsePlace(known.cursor).history;
  }

  /** Measures the lag of the stream, often at first, and checks the tail once in ten polls. */
  async #follow(session: ReplicationSession, ended: AbortSignal): Promise<void> {
    const { checkMs } = this.#target;
    let checkedMs = this.#clock.elapsedMs();
    let pollMs = visibleMinMs;
    while (!ended.aborted) {
      const lsn = await session.flushedLsn();
      await this.#clock.sleep(pollMs, ended);
      if (ended.aborted) return;
      this.#setBehind(session.receivedLsn < lsn);
      pollMs = Math.min(pollMs * 2, checkMs / pollsPerCheck);
      if (this.#clock.elapsedMs() - checkedMs < checkMs) continue;
      await this.#checkUp(session);
      checkedMs = this.#clock.elapsedMs();
    }
  }

  /** While the stream is behind, the log is read with SQL, so that an event need not wait for what other tables have written. */
  #setBehind(isBehind: boolean): void {
    if (isBehind === this.#isBehind) return;
    this.#isBehind = isBehind;
    const [kind, reason] = isBehind
      ? (['by-cursor', behindReason] as const)
      : (['streaming', undefined] as const);
    this.#state = { ...this.#state, kind, reason };
    if (!isBehind) this.#reported = undefined;
    this.#target.onCommitted();
  }

  /**
   * Begins a tail, with everything that is committed from now on. If the publication changes after it was checked, the server
   * describes the log again before the next event, and a new tail begins.
   */
  async #begin(session: ReplicationSession, place: Pick<LogPlace, 'epoch' | 'history'>): Promise<void> {
    const tail = new LogTail(place);
    this.#tail = tail;
    this.#place = place;
    await session.assertStreamable();
    tail.begin(await session.newXid());
    this.#target.onCommitted();
  }

  #committed({ transaction }: StreamedCommit): void {
    const [session, tail] = [this.#session, this.#tail];
    // What arrives while the session is being opened comes before its tail.
    if (transaction === undefined || tail === undefined || session === undefined) return;
    if (transaction !== 'left-out') tail.add(transaction);
    if (transaction === 'left-out' || tail.isFull) {
      void this.#begin(session, this.#place).catch((error: unknown) => session.fail(error));
      return;
    }
    if (this.#releasing !== session) void this.#releaseVisible(session);
    if (tail.needsSettling && this.#settling !== session) void this.#settleEarly(session);
  }

  /** Each query covers all commits that arrived before it. */
  async #releaseVisible(session: ReplicationSession): Promise<void> {
    this.#releasing = session;
    let waitMs = visibleMinMs;
    try {
      while (this.#session === session && this.#tail?.isPending === true) {
        const tail = this.#tail;
        const place = await session.place();
        this.#assertUnchanged(place);
        if (tail.release(place.snapshot)) {
          waitMs = visibleMinMs;
          this.#target.onCommitted();
        } else {
          await this.#clock.sleep(waitMs, this.#closing.signal);
          waitMs = Math.min(waitMs * 2, visibleMaxMs);
        }
      }
    } catch (error) {
      session.fail(error);
    } finally {
      if (this.#releasing === session) this.#releasing = undefined;
    }
  }

  /** Keeps a tail to which much is added from becoming full, and the server from keeping all of its write-ahead log until the next check. */
  async #settleEarly(session: ReplicationSession): Promise<void> {
    this.#settling = session;
    try {
      await this.#settle(session);
    } catch (error) {
      session.fail(error);
    } finally {
      if (this.#settling === session) this.#settling = undefined;
    }
  }

  /** Checks that the stream is unchanged, confirms what the server need not keep, and has each cursor read with SQL once. */
  async #checkUp(session: ReplicationSession): Promise<void> {
    if (session.silentMs > silentMaxMs) throw new Error('The server has been silent for too long');
    this.#assertUnchanged(await session.place());
    await session.assertStreamable();
    await this.#settle(session);
    this.#state = { ...this.#state, slot: await session.retained() };
    this.#tail?.requireCheck();
    this.#target.onCommitted();
  }

  /** Drops what no cursor needs, and confirms to the server that it need not keep that either. */
  async #settle(session: ReplicationSession): Promise<void> {
    const { store, handler } = this.#target;
    const { receivedLsn } = session;
    const tail = this.#tail;
    const cursors = await store.cursors.load(
      Array.from({ length: store.slotCount }, (_unused, slot) => slot),
    );
    const saved = cursors.filter((cursor) => cursor.handler === handler);
    const settled =
      saved.length < store.slotCount || tail !== this.#tail ? undefined : tail?.settle(saved, receivedLsn);
    session.confirm(settled ?? session.confirmedLsn);
  }

  #assertUnchanged({ epoch, history }: LogPlace): void {
    if (epoch === this.#place.epoch && history === this.#place.history) return;
    throw new Error('The server has restarted, or another one has taken its place');
  }

  /** Reports each reason once until the stream has worked again. */
  #refused(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    this.#isSlotOutdated = error instanceof StreamRefusedError && error.isSlotOutdated;
    this.#state = { ...this.#state, kind: 'by-cursor', reason };
    if (reason === this.#reported) return;
    this.#reported = reason;
    if (error instanceof StreamRefusedError && error.isTaken) return;
    this.#target.onError(
      new Error(`The log is read by cursor, because it cannot be streamed: ${reason}`, { cause: error }),
    );
  }
}
