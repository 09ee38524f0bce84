import type { ShardIdentifier } from '@framework/core';
import { DeliveryOperator } from '@framework/events';

import { MemoryFaults, type MemorySnapshot, type MemoryTables } from '../memory/index.js';
import type { ChoiceStreams, Choices } from './choices.js';
import type { Fleet } from './fleet.js';
import type { History } from './history.js';
import type { DeliveryWatch } from './reference/delivery-watch.js';
import type { Scheduler, StepOwner } from './scheduler.js';
import { type SimulatedProcess, openFaultless } from './simulated-process.js';
import type { SimulatedServer } from './simulated-server.js';
import type { NemesisKind } from './simulation-options.js';

const eventsMax = 6;
const pauseMaxMs = 8_000;
const outageMaxMs = 4_000;
const clockJumpMaxMs = 60_000;
const downMaxMs = 4_000;
/** The share of lossy failovers to a replica that lacks the whole run, including the registrations of handlers. */
const oldReplicaShare = 0.3;
const rolloutsMax = 4;
const rolloutStepMaxMs = 800;

/** Causes faults of whole processes and databases at chosen times, and repairs everything at the end. */
export class Nemesis {
  readonly #scheduler: Scheduler;
  readonly #owner: StepOwner;
  readonly #streams: ChoiceStreams;
  readonly #history: History;
  readonly #server: SimulatedServer;
  readonly #fleet: Fleet;
  readonly #shards: readonly ShardIdentifier[];
  readonly #handlers: readonly string[];
  readonly #versionCount: number;
  readonly #operator: DeliveryOperator;
  /** Functions that end the lasting faults. */
  readonly #mends = new Set<() => void>();
  /** The contents of the databases before the run. */
  readonly #given = new Map<MemoryTables, MemorySnapshot>();
  #isOver = false;

  constructor(options: {
    readonly scheduler: Scheduler;
    readonly owner: StepOwner;
    readonly streams: ChoiceStreams;
    readonly history: History;
    readonly server: SimulatedServer;
    readonly watch: DeliveryWatch;
    readonly fleet: Fleet;
    readonly shards: readonly ShardIdentifier[];
    /** The names of all handlers. */
    readonly handlers: readonly string[];
    /** How many versions of the code there are. */
    readonly versionCount: number;
  }) {
    this.#scheduler = options.scheduler;
    this.#owner = options.owner;
    this.#streams = options.streams;
    this.#history = options.history;
    this.#server = options.server;
    this.#fleet = options.fleet;
    this.#shards = options.shards;
    this.#handlers = options.handlers;
    this.#versionCount = options.versionCount;
    const { owner, server, watch } = options;
    const watched = new MemoryFaults((message) => {
      if (message.way === 'answer')
        watch.answered({ owner, version: 0 }, message, server.memory.tables(message.shard));
      return undefined;
    });
    this.#operator = new DeliveryOperator(openFaultless(server, watched));
  }

  /** Plans faults of the given kinds within a period. */
  plan(kinds: readonly NemesisKind[], withinMs: number): void {
    if (kinds.length === 0) return;
    if (kinds.includes('lossy-failover'))
      for (const tables of this.#server.databases) this.#given.set(tables, tables.snapshot());
    const plan = (kind: NemesisKind, choices: Choices): void => {
      this.#scheduler.after(this.#owner, choices.below(withinMs), `fault: ${kind}`, () => {
        if (!this.#isOver) this.#happen(kind, choices);
      });
    };
    const count = this.#streams.of('faults').below(eventsMax + 1);
    for (let index = 0; index < count; index++) {
      const choices = this.#streams.of(`fault ${index}`);
      if (choices.chance(0.9)) plan(choices.pick(kinds), choices);
    }
    // A version meets the leftovers of another one only if versions change often.
    const rolloutCount = kinds.includes('rollout') ? this.#streams.of('rollouts').below(rolloutsMax + 1) : 0;
    for (let index = 0; index < rolloutCount; index++) plan('rollout', this.#streams.of(`rollout ${index}`));
  }

  /** Starts a process after a while, to replace one that has ended. */
  replace({ shards, version }: Pick<SimulatedProcess, 'shards' | 'version'>): void {
    this.#lasting(this.#streams.of('restarts').between(10, downMaxMs), () => {
      this.#fleet.start(this.#isOver ? {} : { shards, version });
    });
  }

  /** Stops a process as an operator would, and replaces it when it has ended. */
  restart(process: SimulatedProcess | undefined): void {
    if (process === undefined || process.isStopping) return;
    process.stop(() => {
      this.#fleet.forget(process);
      this.replace(process);
    });
  }

  /**
   * Repairs everything: all processes run the last version with all shards or are stopping, all databases are
   * available, and no handler is paused.
   */
  async end(): Promise<void> {
    this.#isOver = true;
    for (const mend of this.#mends) mend();
    for (const process of this.#fleet.processes)
      if (!process.isStopping && (!process.isServing || process.version > 0)) this.#fleet.kill(process);
    while (this.#fleet.serving.length < 2) this.#fleet.start();
    for (const handler of this.#handlers) await this.#operator.resume(handler).catch(() => undefined);
  }

  /** Replays all dead letters. Returns how many there were. */
  replayDeadLetters(): Promise<number> {
    return this.#operator.replay({});
  }

  #happen(kind: NemesisKind, choices: Choices): void {
    this.#history.count(kind);
    switch (kind) {
      case 'kill':
        return this.#kill(choices);
      case 'pause':
        return this.#pause(choices);
      case 'clock-jump':
        return this.#fleet.any(choices)?.clock.jump(choices.between(-clockJumpMaxMs, clockJumpMaxMs));
      case 'outage':
        return this.#lasting(
          choices.below(outageMaxMs),
          this.#server.takeDown(choices.pick(this.#server.databases)),
        );
      case 'partition':
        return this.#cutOff(choices);
      case 'failover':
        return this.#server.failOver(choices.pick(this.#server.databases));
      case 'lossy-failover':
        return this.#failOverLate(choices);
      case 'operator-pause':
        return this.#pauseHandler(choices);
      case 'operator-replay':
        return void this.#operator.replay({}).catch(() => undefined);
      case 'notification':
        return choices.pick(this.#server.databases).delivery.notify();
      case 'fewer-shards':
        return this.#loseShard(choices);
      case 'stop':
        return this.restart(this.#fleet.any(choices));
      case 'rollout':
        return this.#rollOut(choices);
    }
  }

  #kill(choices: Choices): void {
    const process = this.#fleet.any(choices);
    if (process === undefined) return;
    this.#fleet.kill(process);
    this.replace(process);
  }

  /**
   * Replaces one process after the other with another version of the code. Each new process starts before the old one
   * ends.
   */
  #rollOut(choices: Choices): void {
    const version = choices.below(this.#versionCount);
    let atMs = 0;
    for (const process of this.#fleet.processes) {
      const isKilled = choices.chance(0.3);
      atMs += choices.below(rolloutStepMaxMs);
      this.#scheduler.after(this.#owner, atMs, `fault: rollout of version ${version}`, () => {
        if (this.#isOver || !process.isAlive || process.isStopping) return;
        this.#fleet.start({ shards: process.shards, version });
        if (isKilled) this.#fleet.kill(process);
        else process.stop(() => this.#fleet.forget(process));
      });
    }
  }

  /** Freezes a process without its knowledge, sometimes for longer than its leases last. */
  #pause(choices: Choices): void {
    const process = this.#fleet.any(choices);
    if (process === undefined) return;
    this.#scheduler.pause(process.owner);
    this.#lasting(choices.below(pauseMaxMs), () => this.#scheduler.resume(process.owner));
  }

  #cutOff(choices: Choices): void {
    const process = this.#fleet.any(choices);
    if (process === undefined) return;
    this.#lasting(choices.below(outageMaxMs), process.cutOff(choices.pick(this.#shards)));
  }

  /** Promotes a replica that has not received the latest commits. */
  #failOverLate(choices: Choices): void {
    const tables = choices.pick(this.#server.databases);
    const { timeline } = tables.delivery;
    const given = this.#given.get(tables);
    const isOld = given?.delivery.timeline === timeline && choices.chance(oldReplicaShare);
    const snapshot = isOld ? given : tables.snapshot();
    this.#scheduler.after(this.#owner, choices.below(outageMaxMs), 'fault: the replica takes over', () => {
      // A replica of an ended history cannot be promoted.
      if (!this.#isOver && tables.delivery.timeline === timeline) this.#server.failOver(tables, snapshot);
    });
  }

  #pauseHandler(choices: Choices): void {
    if (this.#handlers.length === 0) return;
    const handler = choices.pick(this.#handlers);
    void this.#operator.pause(handler).catch(() => undefined);
    this.#lasting(
      choices.below(outageMaxMs),
      () => void this.#operator.resume(handler).catch(() => undefined),
    );
  }

  /** Replaces a process with one whose configuration lacks a shard, as during a rollout. */
  #loseShard(choices: Choices): void {
    const process = this.#fleet.any(choices);
    if (process === undefined || this.#shards.length < 2 || this.#fleet.serving.length < 2) return;
    const lost = choices.pick(this.#shards);
    this.#fleet.kill(process);
    const { version } = process;
    this.#fleet.start({ shards: this.#shards.filter((shard) => shard !== lost), version });
  }

  /** Ends a fault after a duration, or when all faults end. */
  #lasting(durationMs: number, mend: () => void): void {
    const once = (): void => {
      if (this.#mends.delete(once)) mend();
    };
    this.#mends.add(once);
    this.#scheduler.after(this.#owner, durationMs, 'fault: mended', once);
  }
}
