import { type DatabaseRegistry, type ModelClass, ShardIdentifier } from '@framework/core';
import { type AnyEntity, modelNameOf, useIdSource } from '@framework/core/adapter';

import { memorySharding } from '../memory/index.js';
import { checkDeliveries } from '../record/check-deliveries.js';
import { isAtRest } from '../specification/delivery-run.js';
import { EnvironmentRepositories } from '../specification/test-environment.js';
import { RecoveryPhase } from './recovery-phase.js';
import { ChoiceStreams, type Script, randomBytesOf } from './choices.js';
import { Fleet } from './fleet.js';
import { HandlerVersions } from './handler-versions.js';
import { History, codeOf } from './history.js';
import { Nemesis } from './nemesis.js';
import { NetworkFaults, faultMaxMs } from './network-faults.js';
import { checkEffects, checkVersions } from './reference/check-effects.js';
import { DeliveryWatch } from './reference/delivery-watch.js';
import { type RunSettings, chooseSettings } from './run-settings.js';
import { BoundExceededError, Scheduler, SimulatedClock, StepOwner } from './scheduler.js';
import { Trace } from './shrink.js';
import { CommitWatch, SimulatedClients } from './simulated-clients.js';
import { openFaultless } from './simulated-process.js';
import { SimulatedServer, deadLettersIn, deliveredLog } from './simulated-server.js';
import type { SimulationGiven, SimulationOptions, SimulationState } from './simulation-options.js';

const trafficMs = 6_000;
const callsMaxDefault = 60;
/** How long the calls, and then delivery, may take once there are no more faults. */
const restMs = 180_000;
const pollMs = 200;
const replaysMax = 40;
const keyLifetimeWaitMaxMs = 600_000;
/** Of the runs that wait for keys to expire, the share in which no process runs meanwhile. */
const deadShare = 0.8;
const stepsMaxDefault = 200_000;
const virtualMsMax = 3_600_000;

/** The result of a run. */
export interface RunReport {
  readonly seed: number;
  /** The promises that were broken; empty for a successful run. */
  readonly violations: readonly string[];
  /** How often each kind of situation occurred. */
  readonly counts: ReadonlyMap<string, number>;
  /** Runs with equal digests took the same steps at the same times. */
  readonly digest: number;
  readonly stepCount: number;
  readonly virtualMs: number;
  /** The choices of the run. */
  readonly script: Script;
  /** One line per step, if requested. */
  readonly trace: readonly string[];
  /** The settings of the run as text. */
  readonly settings: string;
}

/** One run of a simulation, from the given models to the checks. */
export class SimulationRun<Given extends SimulationGiven> {
  readonly #options: SimulationOptions<Given>;
  readonly #seed: number;
  readonly #shards: readonly [ShardIdentifier, ...ShardIdentifier[]];
  readonly #start: Date;
  readonly #streams: ChoiceStreams;
  readonly #history = new History();
  readonly #owner = new StepOwner('environment');
  readonly #scheduler: Scheduler;
  readonly #server: SimulatedServer;
  readonly #registry: DatabaseRegistry;
  readonly #repositories: EnvironmentRepositories;
  readonly #versions: HandlerVersions;
  readonly #faults: NetworkFaults;
  readonly #fleet: Fleet;
  readonly #nemesis: Nemesis;
  readonly #clients: SimulatedClients;
  readonly #trace: Trace | undefined;
  readonly #settings: RunSettings;
  /** The versions of the given models after they were stored. */
  readonly #givenVersions = new Map<string, number>();
  #given: Given | undefined;
  #commitWatch: CommitWatch | undefined;

  /**
   * @param how.script the choices to make
   * @param how.isTraced whether to record every step
   */
  constructor(
    options: SimulationOptions<Given>,
    seed: number,
    how: { readonly script?: Script | undefined; readonly isTraced?: boolean } = {},
  ) {
    this.#options = options;
    this.#seed = seed;
    this.#shards = options.shards ?? [ShardIdentifier.of(0, 0)];
    this.#start = options.start ?? new Date('2026-01-01T00:00:00Z');
    this.#streams = new ChoiceStreams(seed, how.script);
    const trace = (this.#trace = how.isTraced === true ? new Trace() : undefined);
    const scheduler = (this.#scheduler = new Scheduler(
      this.#streams.of('schedule'),
      { stepsMax: options.stepsMax ?? stepsMaxDefault, virtualMsMax },
      (owner, label) => {
        this.#commitWatch?.look();
        trace?.add(this.#scheduler.nowMs, owner, label);
      },
    ));
    const clock = new SimulatedClock(scheduler, this.#owner, this.#start);
    this.#server = new SimulatedServer({
      sharding: memorySharding(...this.#shards),
      clock,
      scheduler,
      owner: this.#owner,
      history: this.#history,
      onFailedOver: (tables, replica) => watch.failedOver(tables, replica),
    });
    this.#registry = openFaultless(this.#server);
    this.#repositories = new EnvironmentRepositories(options.models, this.#registry);
    const repository = this.#repositories.of;
    const anyOptions = options as unknown as SimulationOptions<SimulationGiven>;
    this.#versions = new HandlerVersions(anyOptions, { clock, databases: this.#registry, repository });

    const settings = (this.#settings = chooseSettings(options, this.#streams.of('settings')));
    const { executor, delivery } = settings;
    const watch = new DeliveryWatch({
      databases: this.#server.databases,
      versions: this.#versions,
      settings: { leaseMs: delivery.leaseMs, attemptsMax: settings.attemptsMax },
      scheduler,
      history: this.#history,
    });
    this.#faults = new NetworkFaults({
      scheduler,
      choices: this.#streams.of('messages'),
      history: this.#history,
      server: this.#server,
      kinds: settings.passageKinds,
      share: settings.share,
      ownStepShare: settings.ownStepShare,
      latencyMs: options.latencyMs ?? 0,
    });
    this.#fleet = new Fleet(this.#shards, {
      options: anyOptions,
      scheduler,
      server: this.#server,
      faults: this.#faults,
      history: this.#history,
      watch,
      start: this.#start,
      executor,
      delivery,
      versions: this.#versions,
      randomOf: (name) => this.#streams.randomOf(name),
      onCrash: (process) => {
        this.#fleet.forget(process);
        this.#nemesis.replace(process);
      },
      onRestartNeeded: (process) => this.#nemesis.restart(process),
    });
    const dependencies = {
      scheduler,
      owner: this.#owner,
      streams: this.#streams,
      history: this.#history,
      fleet: this.#fleet,
    };
    this.#nemesis = new Nemesis({
      ...dependencies,
      server: this.#server,
      watch,
      shards: this.#shards,
      handlers: this.#handlerNames,
      versionCount: this.#versions.count,
    });
    this.#clients = new SimulatedClients({
      ...dependencies,
      principal: options.principal ?? { name: 'simulation' },
    });
  }

  /** Runs to the end. Rejects only with errors of the functions in the simulation's options. */
  async run(): Promise<RunReport> {
    const restoreIds = useIdSource({
      nowMs: () => this.#start.getTime() + Math.floor(this.#scheduler.nowMs),
      fillRandom: randomBytesOf(this.#streams.randomOf('ids')),
    });
    try {
      await this.#playAndCheck();
    } finally {
      for (const process of this.#fleet.processes) process.end();
      restoreIds();
    }
    const { violations, counts } = this.#history;
    return {
      seed: this.#seed,
      violations: violations.map((violation) => this.#trace?.readable(violation) ?? violation),
      counts,
      digest: this.#scheduler.digest,
      stepCount: this.#scheduler.stepCount,
      virtualMs: this.#scheduler.nowMs,
      script: this.#streams.taken,
      trace: this.#trace?.lines ?? [],
      settings: this.#settings.text,
    };
  }

  async #playAndCheck(): Promise<void> {
    const { violations } = this.#history;
    let isOver = false;
    let failure: { readonly error: unknown } | undefined;
    const play = this.#play()
      .catch((error: unknown) => (failure = { error }))
      .finally(() => (isOver = true));
    try {
      await this.#scheduler.run(() => isOver);
      await play;
    } catch (error) {
      failure = { error };
    }
    if (failure !== undefined) {
      if (!(failure.error instanceof BoundExceededError)) throw failure.error;
      violations.push(failure.error.message);
      const open = this.#history.calls.filter(({ outcome }) => outcome === undefined);
      if (open.length > 0)
        violations.push(`calls never ended: ${open.map(({ number }) => number).join(', ')}`);
      return;
    }
    await this.#check();
  }

  async #play(): Promise<void> {
    const given = (this.#given = this.#options.given(this.#streams.of('given')));
    for (const model of given.models) await this.#store(model);
    this.#commitWatch = this.#watchCommits(given);
    this.#startProcesses();
    this.#nemesis.plan(this.#settings.nemesisKinds, trafficMs);
    this.#planCalls(given);
    await this.#sleep(trafficMs);

    this.#faults.end();
    await this.#nemesis.end();
    const faultsEndMs = this.#scheduler.nowMs + faultMaxMs;
    // A call that was abandoned may still wait for an answer, and other calls may wait for models that it has locked.
    const areFaultsOver = (): boolean => this.#scheduler.nowMs >= faultsEndMs;
    await this.#until(() => areFaultsOver() && this.#clients.runningCount === 0, 'the calls do not end');
    await this.#rest();
    if (this.#isAnyBlocked()) await this.#outliveKeys();
    await this.#recoveryPhase(given).play();
    for (let replay = 0; replay < replaysMax && (await this.#nemesis.replayDeadLetters()) > 0; replay++) {
      this.#history.count('dead letters replayed');
      await this.#rest();
    }
  }

  /** Starts the processes, with mixed versions of the code if the run has rollouts. */
  #startProcesses(): void {
    const versions = this.#streams.of('versions');
    const isMixed = this.#settings.nemesisKinds.includes('rollout');
    for (let count = 0; count < this.#settings.processCount; count++)
      this.#fleet.start({ version: isMixed ? versions.below(this.#versions.count) : 0 });
  }

  async #store(model: AnyEntity): Promise<void> {
    const modelClass = model.constructor as ModelClass<AnyEntity>;
    const name = modelNameOf(modelClass);
    const { version } = await this.#repositories.of(modelClass).put(model);
    this.#trace?.name(model.id.value, `${name}-${this.#givenVersions.size}`);
    this.#givenVersions.set(`${name} ${model.id.value}`, version);
  }

  #planCalls(given: Given): void {
    const { burstCount, callShare } = this.#settings;
    const callsMax = this.#options.callsMax ?? callsMaxDefault;
    for (let index = 0; index < callsMax; index++) {
      const choices = this.#streams.of(`call ${index}`);
      if (!choices.chance(callShare)) continue;
      // Many calls at once, so that they interfere.
      const atMs = (choices.below(burstCount) * trafficMs * 0.8) / burstCount;
      this.#scheduler.after(this.#owner, atMs, 'a client begins', () => {
        const call = this.#options.call(choices, given);
        if (call !== undefined) void this.#clients.call(call, choices);
      });
    }
  }

  #recoveryPhase(given: Given): RecoveryPhase {
    return new RecoveryPhase({
      scheduler: this.#scheduler,
      owner: this.#owner,
      history: this.#history,
      streams: this.#streams,
      clients: this.#clients,
      server: this.#server,
      handlers: this.#handlerNames,
      leaseMs: this.#settings.delivery.leaseMs,
      callOf: (choices) => this.#options.call(choices, given),
      rest: () => this.#rest(),
    });
  }

  #watchCommits(given: Given): CommitWatch | undefined {
    const { watch } = this.#options;
    if (watch === undefined) return undefined;
    return new CommitWatch({
      databases: this.#server.databases,
      repository: this.#repositories.of,
      lostCount: () => this.#history.lost.length,
      begin: () => watch(given),
      onThrown: (thrown, { action: { name, id } }) =>
        this.#history.violations.push(`after ${name} ${id}: ${textOf(thrown)}`),
    });
  }

  /**
   * Waits until idempotency keys have expired, to reveal keys that are still needed. Usually no process runs meanwhile,
   * so that the wait takes few steps.
   */
  async #outliveKeys(): Promise<void> {
    const lifetimeMs = this.#options.idempotency?.keyLifetimeMs ?? Infinity;
    if (lifetimeMs > keyLifetimeWaitMaxMs) return;
    if (this.#streams.of('keys').chance(deadShare)) {
      this.#history.count('every process ends');
      for (const process of this.#fleet.processes) this.#fleet.kill(process);
    }
    await this.#sleep(lifetimeMs + 1_000);
    // Starts processes if there are none.
    await this.#nemesis.end();
    await this.#rest();
  }

  #isAnyBlocked(): boolean {
    return this.#server.databases.some(({ delivery }) => delivery.blocked.size > 0);
  }

  get #handlerNames(): readonly string[] {
    return this.#versions.last.map(({ name }) => name);
  }

  #rest(): Promise<void> {
    const names = this.#handlerNames;
    return this.#until(
      () => this.#server.databases.every(({ delivery }) => isAtRest(delivery, names, Infinity)),
      'delivery does not come to rest',
    );
  }

  async #until(condition: () => boolean, otherwise: string): Promise<void> {
    const endMs = this.#scheduler.nowMs + restMs;
    while (!condition()) {
      if (this.#scheduler.nowMs > endMs)
        throw new BoundExceededError(`${otherwise} within ${restMs} ms after the faults`);
      await this.#sleep(pollMs);
    }
  }

  #sleep(durationMs: number): Promise<void> {
    return this.#scheduler.sleep(this.#owner, durationMs, 'timer');
  }

  async #check(): Promise<void> {
    this.#commitWatch?.look();
    const { violations, counts } = this.#history;
    const { databases } = this.#server;
    const commits = databases.flatMap((tables) => tables.commits);
    violations.push(
      ...databases.flatMap((tables) => checkVersions(tables, this.#givenVersions)),
      ...checkEffects(this.#history, commits),
      ...checkDeliveries({
        records: this.#history.deliveries,
        logs: databases.map((tables) => deliveredLog(tables)),
        handlers: this.#versions.last,
        lostIds: this.#history.lostEventIds,
        undone: this.#history.undone,
        isWanted: (handler, type) => this.#versions.areWanted(handler, type, this.#fleet.versions),
      }),
    );
    if (this.#options.deadLettersMayStay !== true) violations.push(...databases.flatMap(deadLettersIn));
    const bugs = this.#history.calls.filter(({ code }) => code === 'invariant-violation');
    violations.push(
      ...bugs.map(({ number, error }) => `call ${number} ran into a bug: ${codeOf(error)} ${String(error)}`),
    );
    counts.set('commits', commits.length);
    const state: SimulationState<Given> = {
      given: this.#given as Given,
      repository: this.#repositories.of,
      commits,
      events: commits.flatMap(({ events }) => events),
      calls: this.#history.calls,
      counts,
      wasDown: (shard, since, until) => this.#server.wasDown(shard, since, until),
      hasLosses: this.#history.lost.length > 0,
    };
    try {
      await this.#options.check?.(state);
    } catch (error) {
      violations.push(textOf(error));
    }
  }
}

function textOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
