import { FrameworkError } from '@framework/core';
import { DeliveryOperator } from '@framework/events';

import type { ChoiceStreams, Choices } from './choices.js';
import type { CallRecord, History, SimulationCall } from './history.js';
import type { Scheduler, StepOwner } from './scheduler.js';
import type { SimulatedClients } from './simulated-clients.js';
import { openFaultless } from './simulated-process.js';
import type { SimulatedServer } from './simulated-server.js';

/**
 * How long a call may take without faults or other calls. It would take longer if it waited for something that was never
 * released.
 */
const callMs = 600;
/** The share of runs in which a handler is paused, which makes a run longer. */
const pausedShare = 0.25;
/** How long to wait for calls of a paused handler, which must not happen. */
const pauseMs = 500;
/** How long a key must still be valid to be used again. */
const keyLeftMs = 5_000;

/** The calls after the faults are over. Nothing is in their way, so they must work as promised. */
export class RecoveryPhase {
  readonly #scheduler: Scheduler;
  readonly #owner: StepOwner;
  readonly #history: History;
  readonly #streams: ChoiceStreams;
  readonly #clients: SimulatedClients;
  readonly #server: SimulatedServer;
  readonly #operator: DeliveryOperator;
  readonly #handlers: readonly string[];
  readonly #leaseMs: number;
  readonly #callOf: (choices: Choices) => SimulationCall | undefined;
  readonly #rest: () => Promise<void>;

  constructor(options: {
    readonly scheduler: Scheduler;
    readonly owner: StepOwner;
    readonly history: History;
    readonly streams: ChoiceStreams;
    readonly clients: SimulatedClients;
    readonly server: SimulatedServer;
    /** The names of all handlers. */
    readonly handlers: readonly string[];
    readonly leaseMs: number;
    readonly callOf: (choices: Choices) => SimulationCall | undefined;
    /** Resolves when delivery has nothing left to do. */
    readonly rest: () => Promise<void>;
  }) {
    this.#scheduler = options.scheduler;
    this.#owner = options.owner;
    this.#history = options.history;
    this.#streams = options.streams;
    this.#clients = options.clients;
    this.#server = options.server;
    this.#operator = new DeliveryOperator(openFaultless(options.server));
    this.#handlers = options.handlers;
    this.#leaseMs = options.leaseMs;
    this.#callOf = options.callOf;
    this.#rest = options.rest;
  }

  /** Makes one call after the other, possibly with a handler paused during the last one. */
  async play(): Promise<void> {
    const record = await this.#call(this.#streams.of('calm call 0'));
    if (record !== undefined) await this.#useKeyAgain(record);
    await this.#rest();
    const choices = this.#streams.of('calm call 1');
    const isPaused = this.#handlers.length > 0 && choices.chance(pausedShare);
    if (isPaused) await this.#callWhilePaused(choices.pick(this.#handlers), choices);
    else await this.#call(choices);
    await this.#rest();
  }

  async #call(choices: Choices): Promise<CallRecord | undefined> {
    const call = this.#callOf(choices);
    if (call === undefined) return undefined;
    await this.#clients.serving();
    const startedMs = this.#scheduler.nowMs;
    const record = await this.#clients.call(call, choices);
    const tookMs = this.#scheduler.nowMs - startedMs;
    const what = `call ${record.number} (${call.action.name}), with no fault and no other call in its way,`;
    if (tookMs > callMs) this.#violated(`${what} took ${Math.round(tookMs)} ms`);
    if (record.outcome === 'unknown') this.#violated(`${what} has no known outcome`);
    if (FrameworkError.find(record.error)?.retryable === true)
      this.#violated(`${what} was refused with a retryable error (${record.code})`);
    return record;
  }

  /** A different request with a used key must be refused. */
  async #useKeyAgain({ number, key, call }: CallRecord): Promise<void> {
    if (key === undefined || !this.#isKept(key)) return;
    const choices = this.#streams.of('another request');
    const other = this.#callOf(choices);
    if (other === undefined || other.keyed === false || isSame(call, other)) return;
    const { outcome, code } = await this.#clients.call({ ...other, principal: call.principal }, choices, key);
    this.#history.count('key used again');
    if (outcome === 'refused' && code === 'idempotency-key-reused') return;
    const answer = `${outcome}${code === undefined ? '' : ` (${code})`}`;
    this.#violated(`another request under the key of call ${number} is not refused as such, but ${answer}`);
  }

  #isKept(key: string): boolean {
    return this.#server.databases.some(({ keys, clock }) =>
      [...keys].some(([scope, { expiresMs }]) => {
        const [, , text] = JSON.parse(scope) as readonly string[];
        return text === key && expiresMs > clock.now().getTime() + keyLeftMs;
      }),
    );
  }

  /** A paused handler must not be called once all processes know that it is paused. */
  async #callWhilePaused(handler: string, choices: Choices): Promise<void> {
    this.#history.count('call while a handler is paused');
    await this.#operator.pause(handler);
    await this.#sleep(this.#leaseMs);
    const before = this.#history.deliveries.length;
    await this.#call(choices);
    await this.#rest();
    await this.#sleep(pauseMs);
    const calls = this.#history.deliveries.slice(before).filter((call) => call.handler === handler);
    if (calls.length > 0) this.#violated(`${handler} is called although it is paused`);
    await this.#operator.resume(handler);
  }

  #sleep(durationMs: number): Promise<void> {
    return this.#scheduler.sleep(this.#owner, durationMs, 'timer');
  }

  #violated(text: string): void {
    this.#history.violations.push(text);
  }
}

/** Whether two calls request the same, judging by their params. */
function isSame(one: SimulationCall, other: SimulationCall): boolean {
  return one.action === other.action && JSON.stringify(one.params) === JSON.stringify(other.params);
}
