import { type ShardIdentifier, ShardUnavailableError, TransientStorageError } from '@framework/core';

import { ConnectionLostError, type MemoryMessage } from '../memory/index.js';
import type { Choices } from './choices.js';
import type { History } from './history.js';
import type { Scheduler, StepOwner } from './scheduler.js';
import type { NetworkFaultKind } from './simulation-options.js';

/** A process, as seen from its connections to databases. */
export interface NetworkPeer {
  readonly owner: StepOwner;
  /** Whether it is currently cut off from the database of a shard. */
  isCutOff(shard: ShardIdentifier): boolean;
  /** Called when there is a fault on a connection to the database of a shard. */
  disturb(shard: ShardIdentifier): void;
  /** Called when a request was carried out after its connection was lost. */
  doneLate(message: MemoryMessage): void;
  crash(): void;
}

/** The databases, as seen from the connections to them. */
export interface PassedServer {
  isDown(shard: ShardIdentifier): boolean;
  /** Changes when the database fails over. */
  timelineOf(shard: ShardIdentifier): number;
  /** Resolves when a late write arrives. It arrives before the database fails over. */
  late(shard: ShardIdentifier, afterMs: number): Promise<void>;
}

/** How long a statement may take before its connection is closed. */
const statementTimeoutMs = 2_000;
/** How long a write with a short lock wait waits for locks. */
const shortLockWaitMs = 50;
const outcomeShare = 0.5;
const slowMaxMs = 400;
const lateMaxMs = 3_000;
/** How long after the last fault something may still wait because of it. */
export const faultMaxMs = Math.max(statementTimeoutMs, lateMaxMs);

/** Decides what happens on each message between processes and databases: mostly nothing. */
export class NetworkFaults {
  readonly #scheduler: Scheduler;
  readonly #choices: Choices;
  readonly #history: History;
  readonly #server: PassedServer;
  readonly #kinds: readonly NetworkFaultKind[];
  readonly #share: number;
  readonly #ownStepShare: number;
  readonly #latencyMs: number;
  #areOver = false;

  /**
   * @param options.kinds the kinds of faults in this run
   * @param options.share the share of messages that have a fault, from 0 to 1
   * @param options.ownStepShare the share of the others that take a step of their own
   * @param options.latencyMs how long each of the others takes; if that is not 0, each is a step of its own
   */
  constructor(options: {
    readonly scheduler: Scheduler;
    readonly choices: Choices;
    readonly history: History;
    readonly server: PassedServer;
    readonly kinds: readonly NetworkFaultKind[];
    readonly share: number;
    readonly ownStepShare: number;
    readonly latencyMs: number;
  }) {
    this.#scheduler = options.scheduler;
    this.#choices = options.choices;
    this.#history = options.history;
    this.#server = options.server;
    this.#kinds = options.kinds;
    this.#share = options.share;
    this.#ownStepShare = options.ownStepShare;
    this.#latencyMs = options.latencyMs;
  }

  /** Starts no further faults. */
  end(): void {
    this.#areOver = true;
  }

  /** Decides what happens on one message. */
  pass(process: NetworkPeer, message: MemoryMessage): Promise<void> | undefined {
    const { owner } = process;
    if (owner.state === 'dead') return new Promise(() => undefined);
    const { shard, way } = message;
    if (way === 'request') this.#notice(message);
    if (this.#server.isDown(shard)) return this.#refused(process, message);
    if (process.isCutOff(shard)) return this.#silent(process, message);
    const kind = this.#fault(message);
    if (kind !== undefined) return this.#happens(kind, process, message);
    const latencyMs = this.#latencyMs;
    if (latencyMs === 0 && owner.state === 'running' && !this.#choices.chance(this.#ownStepShare))
      return undefined;
    return this.#after(process, message, latencyMs);
  }

  #fault(message: MemoryMessage): NetworkFaultKind | undefined {
    if (this.#areOver || this.#share === 0 || this.#kinds.length === 0) return undefined;
    // Questions about a commit's outcome are rare, and faults matter most there.
    const share = message.operation === 'is-committed' ? outcomeShare : this.#share;
    if (!this.#choices.chance(share)) return undefined;
    const kind = this.#choices.pick(this.#kinds);
    return isPossible(kind, message) ? kind : undefined;
  }

  #happens(kind: NetworkFaultKind, process: NetworkPeer, message: MemoryMessage): Promise<void> {
    const { shard } = message;
    this.#history.count(kind);
    process.disturb(shard);
    switch (kind) {
      case 'slow':
        return this.#after(process, message, 1 + this.#choices.below(slowMaxMs));
      case 'deadlock':
        return this.#failing(process, message, 0, new TransientStorageError(shard, 'deadlock detected'));
      case 'lock-wait':
        return this.#lockWait(process, message);
      case 'unavailable':
        return this.#refused(process, message);
      case 'request-lost':
      case 'answer-lost':
        return this.#failing(process, message, 0, new ConnectionLostError());
      case 'late-commit': {
        const arrival = this.#server.late(shard, 1 + this.#choices.below(lateMaxMs));
        const onDone = (): void => process.doneLate(message);
        return this.#failing(process, message, 0, new ConnectionLostError({ arrival, onDone }));
      }
      case 'silent':
        return this.#silent(process, message);
      case 'crash-before':
      case 'crash-after':
        process.crash();
    }
    return new Promise(() => undefined);
  }

  /** Another session holds a lock on a row, either briefly or longer than a short lock wait. */
  #lockWait(process: NetworkPeer, message: MemoryMessage): Promise<void> {
    const waitMs = 1 + this.#choices.below(1_000);
    const isShort = message.operation === 'persist-all' || message.options?.shortLockWait === true;
    if (!isShort || waitMs <= shortLockWaitMs) return this.#after(process, message, waitMs);
    const error = new TransientStorageError(message.shard, 'canceling statement due to lock timeout');
    return this.#failing(process, message, shortLockWaitMs, error);
  }

  #refused(process: NetworkPeer, message: MemoryMessage): Promise<void> {
    process.disturb(message.shard);
    if (message.operation === 'ready') return this.#after(process, message, statementTimeoutMs);
    // A request that was carried out before the outage loses its answer, and nobody hears notifications.
    const isLost = message.way === 'answer' || message.operation === 'notifications.hear';
    const error = isLost
      ? new ConnectionLostError()
      : new ShardUnavailableError(message.shard, 'the database is down');
    return this.#failing(process, message, 1, error);
  }

  #silent(process: NetworkPeer, message: MemoryMessage): Promise<void> {
    process.disturb(message.shard);
    if (message.operation === 'ready') return this.#after(process, message, statementTimeoutMs);
    return this.#failing(process, message, statementTimeoutMs, new ConnectionLostError());
  }

  async #failing(
    { owner }: NetworkPeer,
    message: MemoryMessage,
    afterMs: number,
    error: Error,
  ): Promise<void> {
    await this.#wait(owner, message, afterMs);
    throw error;
  }

  async #after({ owner }: NetworkPeer, message: MemoryMessage, afterMs: number): Promise<void> {
    const { shard } = message;
    const timeline = this.#server.timelineOf(shard);
    await this.#wait(owner, message, afterMs);
    // The connection was to a server that is gone.
    if (message.operation !== 'ready' && this.#server.timelineOf(shard) !== timeline)
      throw new ConnectionLostError();
  }

  /** Waits no longer than the request may take. */
  async #wait(owner: StepOwner, message: MemoryMessage, durationMs: number): Promise<void> {
    const { shard, waitMs = Infinity } = message;
    await this.#scheduler.sleep(owner, Math.min(durationMs, waitMs), message);
    if (durationMs > waitMs) throw new ShardUnavailableError(shard, `no answer within ${waitMs} ms`);
  }

  /** Counts situations of interest, and records the keys with which actions are sent. */
  #notice({ operation, changes = [] }: MemoryMessage): void {
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

/** In which direction of a message each fault can happen. Faults of an answer come when the work is done. */
const wayOf: Readonly<Record<NetworkFaultKind, MemoryMessage['way'] | 'both'>> = {
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

/** The writes of delivery. */
const deliveryWrites: ReadonlySet<string> = new Set([
  'cursors.register',
  'cursors.save',
  'leases.renew',
  'leases.release',
  'leases.recovered',
  'blocked.fail',
  'blocked.hold',
  'blocked.begin',
  'blocked.giveBack',
  'blocked.move',
]);

function isPossible(kind: NetworkFaultKind, { operation, way }: MemoryMessage): boolean {
  if (operation === 'ready') return kind === 'slow';
  if (operation === 'notifications.hear') return kind === 'slow' || kind === 'request-lost';
  const isWrite = operation === 'persist' || operation === 'persist-all';
  if (kind === 'lock-wait' && !isWrite) return false;
  if (kind === 'late-commit' && !isWrite && !deliveryWrites.has(operation)) return false;
  return wayOf[kind] === 'both' || wayOf[kind] === way;
}
