import type { Clock } from '../clock.js';
import { type RangesOf, waitRange } from '../config/settings.js';
import type { ModelClass } from '../model/model-class.js';
import { ModelMap } from '../model/model-map.js';
import { Ticker } from '../ticker.js';

/** The right to be the one execution of this process that changes a model: held until it is given back. */
export interface Turn {
  readonly model: ModelClass<unknown>;
  readonly id: string;
}

interface Waiter {
  readonly startedTick: number;
  /** Whether it does not wait for a turn that takes long to come. */
  readonly isHurried: boolean;
  readonly end: (turn: Turn | undefined) => void;
}

/** A model whose turn somebody holds, and those that wait for it, in the order in which they came. */
interface HeldModel {
  /** Another one for each holder. */
  turn: Turn;
  takenTick: number;
  /** Whether its holder is known to keep it for long. */
  isHeldUp: boolean;
  waiters: Waiter[];
}

/**
 * Lets the executions of one process change a model one after another, so that none of them is stale because of
 * another one.
 *
 * It only saves attempts: whoever goes on without a turn is as safe as with one, because versions are guarded. So a turn that
 * is held for longer than anybody waits goes to the next one, because its holder may never give it back.
 */
export class ModelTurns {
  readonly #held = new ModelMap<HeldModel>();
  readonly #awaited = new Set<HeldModel>();
  readonly #ticker: Ticker;

  constructor({ waitMs }: TurnSettings, clock: Clock) {
    this.#ticker = new Ticker(clock, waitMs, () => this.#endWaits());
  }

  /** Takes a turn that is free; `undefined` when somebody holds it. */
  takeFree(model: ModelClass<unknown>, id: string): Turn | undefined {
    if (this.#held.get(model, id) !== undefined) return undefined;
    const turn: Turn = { model, id };
    this.#held.set(model, id, { turn, takenTick: this.#ticker.tick, isHeldUp: false, waiters: [] });
    return turn;
  }

  /**
   * Waits for a turn that somebody holds; `undefined` when it did not come in time.
   *
   * @param isHurried whether it is not waited for while its holder is held up
   */
  waitFor(model: ModelClass<unknown>, id: string, isHurried: boolean = false): Promise<Turn | undefined> {
    const held = this.#held.get(model, id);
    if (held === undefined) return Promise.resolve(this.takeFree(model, id));
    if (held.isHeldUp && isHurried) return Promise.resolve(undefined);
    return new Promise((end) => {
      held.waiters.push({ startedTick: this.#ticker.tick, isHurried, end });
      this.#awaited.add(held);
      this.#ticker.start();
    });
  }

  /** Gives a turn back: to the one that has waited longest, if anybody does. */
  giveBack(turn: Turn): void {
    const held = this.#held.get(turn.model, turn.id);
    if (held?.turn === turn) this.#passOn(held);
  }

  /** Says that the holder of a turn keeps it for long: who is in a flushSoon waits for it no longer. */
  holdUp(turn: Turn): void {
    const held = this.#held.get(turn.model, turn.id);
    if (held?.turn !== turn) return;
    held.isHeldUp = true;
    const { waiters } = held;
    held.waiters = waiters.filter(({ isHurried }) => !isHurried);
    if (held.waiters.length === 0) this.#awaited.delete(held);
    for (const { isHurried, end } of waiters) if (isHurried) end(undefined);
  }

  #passOn(held: HeldModel): void {
    const { model, id } = held.turn;
    const next = held.waiters.shift();
    if (held.waiters.length === 0) this.#awaited.delete(held);
    if (next === undefined) {
      this.#held.delete(model, id);
      return;
    }
    held.turn = { model, id };
    held.takenTick = this.#ticker.tick;
    held.isHeldUp = false;
    next.end(held.turn);
  }

  /** Ends what has lasted long enough, turns and waits; tells whether any waits are left. */
  #endWaits(): boolean {
    for (const held of this.#awaited) {
      if (this.#ticker.isOver(held.takenTick)) this.#passOn(held);
      this.#sendAway(held);
    }
    return this.#awaited.size > 0;
  }

  #sendAway(held: HeldModel): void {
    const { waiters } = held;
    // They came in the order of their ticks.
    const kept = waiters.findIndex(({ startedTick }) => !this.#ticker.isOver(startedTick));
    const ended = waiters.splice(0, kept === -1 ? waiters.length : kept);
    if (waiters.length === 0) this.#awaited.delete(held);
    for (const { end } of ended) end(undefined);
  }
}

/** How executions of one process that want the same model wait for each other. */
export interface TurnSettings {
  /**
   * How long an execution waits for its turn at least; after at most one and a half times as long it goes on without
   * it, and the guarded version decides. Nor does another one keep its turn for longer while somebody waits. Default 1,000.
   */
  readonly waitMs: number;
}

export const defaultTurnSettings: TurnSettings = { waitMs: 1_000 };

export const turnRanges: RangesOf<TurnSettings> = { waitMs: waitRange };
