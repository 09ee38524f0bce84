import { type ShardIdentifier, ShardUnavailableError, TransientStorageError } from '@framework/core';

import { ConnectionLostError, type MemoryPassage } from '../memory/index.js';
import type { Choices } from './choices.js';
import type { History } from './history.js';
import type { Scheduler, StepOwner } from './scheduler.js';
import type { PassageFaultKind } from './simulation-options.js';

/** A process, as what is on its ways sees it. */
export interface PassingProcess {
  readonly owner: StepOwner;
  /** Whether it has no connection to the database of a shard now. */
  isCutOff(shard: ShardIdentifier): boolean;
  /** Called when something is wrong on one of its ways to the database of a shard. */
  disturb(shard: ShardIdentifier): void;
  /** Called when what it asked for was done after its connection was lost. */
  doneLate(passage: MemoryPassage): void;
  crash(): void;
}

/** The databases, as those see it whose way leads there. */
export interface PassedServer {
  isDown(shard: ShardIdentifier): boolean;
  /** Changes when the database fails over. */
  timelineOf(shard: ShardIdentifier): number;
  /** A write that comes late; it comes before the database fails over. */
  late(shard: ShardIdentifier, afterMs: number): Promise<void>;
}

/** How long a statement may take before its connection is given up. */
const statementTimeoutMs = 2_000;
/** How long a write waits for locks that should not wait for long. */
const shortLockWaitMs = 50;
const outcomeShare = 0.5;
const slowMaxMs = 400;
const lateMaxMs = 3_000;
/** How long after the last fault something may still wait for it. */
export const faultMaxMs = Math.max(statementTimeoutMs, lateMaxMs);

/** Decides what happens on each way between processes and databases: mostly nothing. */
export class PassageFaults {
  readonly #scheduler: Scheduler;
  readonly #choices: Choices;
  readonly #history: History;
  readonly #server: PassedServer;
  readonly #kinds: readonly PassageFaultKind[];
  readonly #share: number;
  readonly #hopShare: number;
  #areOver = false;

  /**
   * @param options.kinds those of this run
   * @param options.share how many ways have a fault, from 0 to 1
   * @param options.hopShare how many take a step of their own when they have none
   */
  constructor(options: {
    readonly scheduler: Scheduler;
    readonly choices: Choices;
    readonly history: History;
    readonly server: PassedServer;
    readonly kinds: readonly PassageFaultKind[];
    readonly share: number;
    readonly hopShare: number;
  }) {
    this.#scheduler = options.scheduler;
    this.#choices = options.choices;
    this.#history = options.history;
    this.#server = options.server;
    this.#kinds = options.kinds;
    this.#share = options.share;
    this.#hopShare = options.hopShare;
  }

  /** Lets no further fault begin. */
  end(): void {
    this.#areOver = true;
  }

  /** What happens on one way. */
  pass(process: PassingProcess, passage: MemoryPassage): Promise<void> | undefined {
    const { owner } = process;
    if (owner.state === 'dead') return new Promise(() => undefined);
    const { shard, way } = passage;
    if (way === 'request') this.#notice(passage);
    if (this.#server.isDown(shard)) return this.#refused(process, passage);
    if (process.isCutOff(shard)) return this.#silent(process, passage);
    const kind = this.#fault(passage);
    if (kind !== undefined) return this.#happens(kind, process, passage);
    if (owner.state === 'running' && !this.#choices.chance(this.#hopShare)) return undefined;
    return this.#after(process, passage, 0);
  }

  #fault(passage: MemoryPassage): PassageFaultKind | undefined {
    if (this.#areOver || this.#share === 0 || this.#kinds.length === 0) return undefined;
    // What became of a write is asked seldom, and matters most when that fails, too.
    const share = passage.operation === 'is-committed' ? outcomeShare : this.#share;
    if (!this.#choices.chance(share)) return undefined;
    const kind = this.#choices.pick(this.#kinds);
    return isPossible(kind, passage) ? kind : undefined;
  }

  #happens(kind: PassageFaultKind, process: PassingProcess, passage: MemoryPassage): Promise<void> {
    const { shard } = passage;
    this.#history.count(kind);
    process.disturb(shard);
    switch (kind) {
      case 'slow':
        return this.#after(process, passage, 1 + this.#choices.below(slowMaxMs));
      case 'deadlock':
        return this.#failing(process, passage, 0, new TransientStorageError(shard, 'deadlock detected'));
      case 'lock-wait':
        return this.#lockWait(process, passage);
      case 'unavailable':
        return this.#refused(process, passage);
      case 'request-lost':
      case 'answer-lost':
        return this.#failing(process, passage, 0, new ConnectionLostError());
      case 'late-commit': {
        const arrival = this.#server.late(shard, 1 + this.#choices.below(lateMaxMs));
        const onDone = (): void => process.doneLate(passage);
        return this.#failing(process, passage, 0, new ConnectionLostError({ arrival, onDone }));
      }
      case 'silent':
        return this.#silent(process, passage);
      case 'crash-before':
      case 'crash-after':
        process.crash();
    }
    return new Promise(() => undefined);
  }

  /** Somebody else holds a lock on a row: for a moment, or for longer than who waits for a moment only. */
  #lockWait(process: PassingProcess, passage: MemoryPassage): Promise<void> {
    const waitMs = 1 + this.#choices.below(1_000);
    const isShort = passage.operation === 'persist-all' || passage.options?.shortLockWait === true;
    if (!isShort || waitMs <= shortLockWaitMs) return this.#after(process, passage, waitMs);
    const error = new TransientStorageError(passage.shard, 'canceling statement due to lock timeout');
    return this.#failing(process, passage, shortLockWaitMs, error);
  }

  #refused(process: PassingProcess, passage: MemoryPassage): Promise<void> {
    process.disturb(passage.shard);
    if (passage.operation === 'ready') return this.#after(process, passage, statementTimeoutMs);
    // What was done before it went down has lost its answer, and notifications are heard by nobody.
    const isLost = passage.way === 'answer' || passage.operation === 'notifications.hear';
    const error = isLost
      ? new ConnectionLostError()
      : new ShardUnavailableError(passage.shard, 'the database is down');
    return this.#failing(process, passage, 1, error);
  }

  #silent(process: PassingProcess, passage: MemoryPassage): Promise<void> {
    process.disturb(passage.shard);
    if (passage.operation === 'ready') return this.#after(process, passage, statementTimeoutMs);
    return this.#failing(process, passage, statementTimeoutMs, new ConnectionLostError());
  }

  async #failing(
    { owner }: PassingProcess,
    passage: MemoryPassage,
    afterMs: number,
    error: Error,
  ): Promise<void> {
    await this.#wait(owner, passage, afterMs);
    throw error;
  }

  async #after({ owner }: PassingProcess, passage: MemoryPassage, afterMs: number): Promise<void> {
    const { shard } = passage;
    const timeline = this.#server.timelineOf(shard);
    await this.#wait(owner, passage, afterMs);
    // The connection was to a server that is gone.
    if (passage.operation !== 'ready' && this.#server.timelineOf(shard) !== timeline)
      throw new ConnectionLostError();
  }

  /** Waits for no longer than the question may take. */
  async #wait(owner: StepOwner, passage: MemoryPassage, durationMs: number): Promise<void> {
    const { shard, waitMs = Infinity } = passage;
    await this.#scheduler.sleep(owner, Math.min(durationMs, waitMs), passage);
    if (durationMs > waitMs) throw new ShardUnavailableError(shard, `no answer within ${waitMs} ms`);
  }

  /** Notes what is worth counting, and the keys under which actions are sent. */
  #notice({ operation, changes = [] }: MemoryPassage): void {
    if (operation !== 'persist' && operation !== 'persist-all') return;
    for (const { action, key } of changes) {
      if (key !== undefined)
        this.#history.keys.set(action.id, JSON.stringify([key.namespace, key.principal, key.key]));
    }
    if (changes.length < 2) return;
    this.#history.count('group');
    const ids = changes.flatMap((each) => each.changes.map(({ model }) => model.id.value));
    if (new Set(ids).size < ids.length) this.#history.count('chain of pending versions');
  }
}

/** On which way a fault can happen; what crashes or loses an answer needs something that was done. */
const wayOf: Readonly<Record<PassageFaultKind, MemoryPassage['way'] | 'both'>> = {
  slow: 'both',
  silent: 'both',
  deadlock: 'request',
  'lock-wait': 'request',
  unavailable: 'request',
  'request-lost': 'request',
  'late-commit': 'request',
  'crash-before': 'request',
  'answer-lost': 'answer',
  'crash-after': 'answer',
};

/** What delivery writes by statements of their own. */
const deliveryWrites: ReadonlySet<string> = new Set([
  'cursors.register',
  'cursors.save',
  'leases.renew',
  'leases.release',
  'blocked.block',
  'blocked.beginAttempt',
  'blocked.endAttempt',
  'blocked.giveBackAttempt',
]);

function isPossible(kind: PassageFaultKind, { operation, way }: MemoryPassage): boolean {
  if (operation === 'ready') return kind === 'slow';
  if (operation === 'notifications.hear') return kind === 'slow' || kind === 'request-lost';
  const isWrite = operation === 'persist' || operation === 'persist-all';
  if (kind === 'lock-wait' && !isWrite) return false;
  if (kind === 'late-commit' && !isWrite && !deliveryWrites.has(operation)) return false;
  return wayOf[kind] === 'both' || wayOf[kind] === way;
}
