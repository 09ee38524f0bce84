import type { Clock } from '@framework/core';

import type { MemoryMessage } from '../memory/index.js';
import type { Choices } from './choices.js';

// oxlint-disable-next-line no-restricted-globals -- this is what decides when everything else goes on
const nextTurn: (work: () => void) => void = setImmediate;

/**
 * How many turns are scheduled at once. With one at a time, the event loop would check timers and sockets before each.
 */
const turnsAtOnce = 64;

/** Describes a step for the trace: a message to or from a database, or a text. */
export type StepLabel = string | MemoryMessage;

/** The owner of steps. While it is paused, none of its steps runs; when it is dead, none ever will. */
export class StepOwner {
  readonly name: string;
  state: 'running' | 'paused' | 'dead' = 'running';
  /** The steps that became ready while it was paused. */
  readonly held: Step[] = [];
  /** The total time for which it was paused; updated when it is resumed. */
  stalledMs = 0;
  /** When it was last paused. */
  pausedAtMs = 0;
  /** When it was last resumed; `undefined` if never. */
  resumedMs: number | undefined;

  constructor(name: string) {
    this.name = name;
  }
}

interface Step {
  readonly owner: StepOwner;
  readonly label: StepLabel;
  /** `undefined` once it is cancelled. */
  work: (() => void) | undefined;
}

interface Timer {
  readonly dueMs: number;
  readonly step: Step;
}

/** A run was ended because it went on for too long or got stuck. */
export class BoundExceededError extends Error {
  override readonly name = 'BoundExceededError';
}

/** Limits of a run. */
export interface SchedulerBounds {
  readonly stepsMax: number;
  readonly virtualMsMax: number;
}

/**
 * Runs ready steps one after another in a chosen order, and lets time pass only when no step is ready.
 *
 * Before each step, everything that the previous one has resolved runs to its end. So the same choices give the same
 * run.
 */
export class Scheduler {
  /** A hash of which steps were run and when: equal runs have equal digests. */
  digest = 0x811c9dc5;
  stepCount = 0;
  readonly #choices: Choices;
  readonly #bounds: SchedulerBounds;
  readonly #onStep: ((owner: StepOwner, label: StepLabel) => void) | undefined;
  readonly #ready: Step[] = [];
  /** The steps that wait for time to pass, in the order in which they are due. */
  readonly #timers: Timer[] = [];
  #nowMs = 0;

  /** @param onStep called before each step, for a trace */
  constructor(
    choices: Choices,
    bounds: SchedulerBounds,
    onStep?: (owner: StepOwner, label: StepLabel) => void,
  ) {
    this.#choices = choices;
    this.#bounds = bounds;
    this.#onStep = onStep;
  }

  /** Milliseconds of virtual time since the start. */
  get nowMs(): number {
    return this.#nowMs;
  }

  /** Resolves in a separate step. */
  step(owner: StepOwner, label: StepLabel): Promise<void> {
    return new Promise((work) => this.#add({ owner, label, work }));
  }

  /** Resolves in a separate step after a duration. */
  sleep(owner: StepOwner, durationMs: number, label: StepLabel): Promise<void> {
    return new Promise((work) => this.after(owner, durationMs, label, work));
  }

  /**
   * Calls back in a separate step after a duration.
   *
   * @returns a function that cancels the call
   */
  after(owner: StepOwner, durationMs: number, label: StepLabel, work: () => void): () => void {
    const step: Step = { owner, label, work };
    if (durationMs > 0) this.#wait({ dueMs: this.#nowMs + durationMs, step });
    else this.#add(step);
    return () => void (step.work = undefined);
  }

  /** Stops running the steps of an owner until it is resumed. */
  pause(owner: StepOwner): void {
    if (owner.state !== 'running') return;
    owner.state = 'paused';
    owner.pausedAtMs = this.#nowMs;
    owner.held.push(...this.#takeOut(owner));
  }

  /** Releases the steps that were held back. */
  resume(owner: StepOwner): void {
    if (owner.state !== 'paused') return;
    owner.state = 'running';
    owner.stalledMs += this.#nowMs - owner.pausedAtMs;
    owner.resumedMs = this.#nowMs;
    this.#ready.push(...owner.held.splice(0));
  }

  /** Never runs a step of the owner again. */
  kill(owner: StepOwner): void {
    owner.state = 'dead';
    owner.held.length = 0;
    this.#takeOut(owner);
  }

  /**
   * Runs until a condition holds.
   *
   * @throws BoundExceededError when that takes too many steps or too long, or nothing is left to do
   */
  run(isOver: () => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      let isEnded = false;
      const turn = (): void => {
        if (isEnded) return;
        try {
          isEnded = isOver();
          if (isEnded) resolve();
          else this.#runNext();
        } catch (error) {
          isEnded = true;
          reject(error);
        }
      };
      const takeTurns = (): void => {
        for (let count = 0; count < turnsAtOnce; count++) nextTurn(turn);
        if (!isEnded) nextTurn(takeTurns);
      };
      takeTurns();
    });
  }

  #runNext(): void {
    const { stepsMax, virtualMsMax } = this.#bounds;
    while (this.#ready.length === 0) this.#passTime();
    if (++this.stepCount > stepsMax)
      throw new BoundExceededError(`the run has not ended after ${stepsMax} steps`);
    if (this.#nowMs > virtualMsMax)
      throw new BoundExceededError(`the run has not ended after ${virtualMsMax} ms of virtual time`);
    const index = this.#ready.length === 1 ? 0 : this.#choices.below(this.#ready.length);
    const [step] = this.#ready.splice(index, 1);
    if (step?.work === undefined) return;
    this.digest = Math.imul(this.digest ^ (index + Math.floor(this.#nowMs * 64)), 0x01000193);
    this.#onStep?.(step.owner, step.label);
    step.work();
  }

  /** Lets time pass until the next timer is due. */
  #passTime(): void {
    const next = this.#timers.shift();
    if (next === undefined)
      throw new BoundExceededError(
        'nothing is left to run: everything waits for an event that never happens',
      );
    if (next.step.work === undefined || next.step.owner.state === 'dead') return;
    this.#nowMs = next.dueMs;
    this.#add(next.step);
    while (this.#timers[0]?.dueMs === this.#nowMs) {
      const [also] = this.#timers.splice(0, 1);
      if (also?.step.work !== undefined) this.#add(also.step);
    }
  }

  #add(step: Step): void {
    const { owner } = step;
    if (owner.state === 'running') this.#ready.push(step);
    else if (owner.state === 'paused') owner.held.push(step);
  }

  #wait(timer: Timer): void {
    if (!Number.isFinite(timer.dueMs)) return;
    let place = this.#timers.length;
    while (place > 0 && (this.#timers[place - 1]?.dueMs ?? 0) > timer.dueMs) place--;
    this.#timers.splice(place, 0, timer);
  }

  #takeOut(owner: StepOwner): readonly Step[] {
    const taken = this.#ready.filter((step) => step.owner === owner);
    const left = this.#ready.filter((step) => step.owner !== owner);
    this.#ready.splice(0, Infinity, ...left);
    return taken;
  }
}

/** The clock of one process. Its time of day may jump, but its durations do not. */
export class SimulatedClock implements Clock {
  readonly #scheduler: Scheduler;
  readonly #owner: StepOwner;
  /** Functions that remove the abort listeners of sleepers. */
  readonly #sleepers = new Set<() => void>();
  #startMs: number;

  /** @param start the time of day at the start of the run */
  constructor(scheduler: Scheduler, owner: StepOwner, start: Date) {
    this.#scheduler = scheduler;
    this.#owner = owner;
    this.#startMs = start.getTime();
  }

  now(): Date {
    return new Date(this.#startMs + Math.floor(this.#scheduler.nowMs));
  }

  elapsedMs(): number {
    return this.#scheduler.nowMs;
  }

  sleep(durationMs: number, signal?: AbortSignal): Promise<void> {
    if (!(durationMs > 0) || signal?.aborted === true) return Promise.resolve();
    if (signal === undefined) return this.#scheduler.sleep(this.#owner, durationMs, 'timer');
    return new Promise((resolve) => {
      const leave = (): void => {
        signal.removeEventListener('abort', wake);
        this.#sleepers.delete(leave);
      };
      const wake = (): void => {
        leave();
        cancel();
        resolve();
      };
      const cancel = this.after(durationMs, wake);
      signal.addEventListener('abort', wake);
      this.#sleepers.add(leave);
    });
  }

  /**
   * Removes all abort listeners. A combined signal, and everything that its listeners refer to, stays in memory as long
   * as it has listeners.
   */
  end(): void {
    for (const leave of this.#sleepers) leave();
  }

  after(durationMs: number, work: () => void): () => void {
    return this.#scheduler.after(this.#owner, durationMs, 'timer', work);
  }

  /** Moves the time of day forwards or backwards. */
  jump(byMs: number): void {
    this.#startMs += byMs;
  }
}
