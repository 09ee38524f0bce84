import type { Clock } from '../clock.js';
import type { ModelClass } from '../model/model-class.js';
import { ModelMap } from '../model/model-map.js';
import { Ticker } from '../ticker.js';
import type { TurnSettings } from './turn-settings.js';

/** The right to be the one execution of this process that changes a model: held until it is given back. */
export interface Turn {
  readonly model: ModelClass<unknown>;
  readonly id: string;
}

interface Waiter {
  readonly startedTick: number;
  readonly end: (turn: Turn | undefined) => void;
}

/** A turn that somebody holds, and those that wait for it, in the order in which they came. */
interface HeldTurn extends Turn {
  readonly waiters: Waiter[];
}

/**
 * Lets the executions of one process change a model one after another, so that none of them is stale because of
 * another one.
 *
 * It only saves attempts: whoever goes on without a turn is as safe as with one, because versions are guarded.
 */
export class ModelTurns {
  readonly #held = new ModelMap<HeldTurn>();
  readonly #awaited = new Set<HeldTurn>();
  readonly #ticker: Ticker;

  constructor({ waitMs }: TurnSettings, clock: Clock) {
    this.#ticker = new Ticker(clock, waitMs, () => this.#sendAllAway());
  }

  /** Takes a turn that is free; `undefined` when somebody holds it. */
  takeFree(model: ModelClass<unknown>, id: string): Turn | undefined {
    if (this.#held.get(model, id) !== undefined) return undefined;
    const turn: HeldTurn = { model, id, waiters: [] };
    this.#held.set(model, id, turn);
    return turn;
  }

  /** Waits for a turn that somebody holds; `undefined` when it did not come in time. */
  waitFor(model: ModelClass<unknown>, id: string): Promise<Turn | undefined> {
    const held = this.#held.get(model, id);
    if (held === undefined) return Promise.resolve(this.takeFree(model, id));
    return new Promise((end) => {
      held.waiters.push({ startedTick: this.#ticker.tick, end });
      this.#awaited.add(held);
      this.#ticker.start();
    });
  }

  /** Gives a turn back: to the one that has waited longest, if anybody does. */
  giveBack(turn: Turn): void {
    const held = this.#held.get(turn.model, turn.id);
    if (held === undefined || held !== turn) return;
    const next = held.waiters.shift();
    if (held.waiters.length === 0) this.#awaited.delete(held);
    if (next === undefined) this.#held.delete(turn.model, turn.id);
    else next.end(held);
  }

  /** Ends the waits that have lasted long enough; tells whether any are left. */
  #sendAllAway(): boolean {
    for (const held of this.#awaited) this.#sendAway(held);
    return this.#awaited.size > 0;
  }

  #sendAway(held: HeldTurn): void {
    const { waiters } = held;
    // They came in the order of their ticks.
    const kept = waiters.findIndex(({ startedTick }) => !this.#ticker.isOver(startedTick));
    const ended = waiters.splice(0, kept === -1 ? waiters.length : kept);
    if (waiters.length === 0) this.#awaited.delete(held);
    for (const { end } of ended) end(undefined);
  }
}
