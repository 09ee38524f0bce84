import type { ParkedEvents, ParkedHead } from '@framework/core';
import { eventBytesMax } from '../delivery-settings.js';
import { modelKey } from '../flow/flow-work.js';
import type { HandlerFlow } from '../flow/handler-flow.js';
import type { HeldSlot } from '../lease/held-slot.js';
import type { LeaseKeeper } from '../lease/lease-keeper.js';
import { Alarm } from '../waking/alarm.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';
import type { SuspectGate } from './suspect-gate.js';

const dueGrowth = 8;
/** The longest timer. */
const aloneMaxMs = 2 ** 31 - 1;

/** A parked event that one of the flows can try now. */
interface Attempt {
  readonly key: string;
  readonly head: ParkedHead;
  readonly slot: HeldSlot;
  readonly flow: HandlerFlow;
}

/** Finds parked events that are due, in one database, and has them tried by the flows of their handlers. */
export class RetryLoop {
  readonly #context: WorkerContext;
  readonly #parked: Pick<ParkedEvents, 'dueHeads' | 'nextDueMs'>;
  readonly #keeper: LeaseKeeper;
  readonly #flows: ReadonlyMap<string, HandlerFlow>;
  readonly #gate: SuspectGate;
  readonly #alarm: Alarm;
  /** By handler and model. */
  readonly #running = new Map<string, Attempt>();
  /** Found to be due, and started as soon as others have ended. */
  #waiting: readonly Attempt[] = [];
  /** Models whose last attempt has ended, and of which it is not known whether more is parked. */
  readonly #ended = new Map<string, Attempt>();
  #dueMax: number;

  constructor(options: {
    readonly context: WorkerContext;
    readonly parked: Pick<ParkedEvents, 'dueHeads' | 'nextDueMs'>;
    readonly keeper: LeaseKeeper;
    readonly flows: ReadonlyMap<string, HandlerFlow>;
    /** The same for all databases of a process. */
    readonly gate: SuspectGate;
  }) {
    this.#context = options.context;
    this.#parked = options.parked;
    this.#keeper = options.keeper;
    this.#flows = options.flows;
    this.#gate = options.gate;
    this.#alarm = new Alarm(options.context.clock);
    this.#dueMax = options.context.settings.dueMax;
  }

  /** Looks at once, because something may be due. */
  wake(): void {
    this.#alarm.ring();
  }

  /**
   * Looks for what is due until delivery stops; while no model is known to be parked, only once in a lease's time: a statement that
   * parks may reach the database after it was given up, and its event was handled.
   */
  async run(): Promise<void> {
    const { stopping, onError } = this.#context;
    const backoff = storeBackoff(this.#context);
    while (!stopping.aborted) {
      if (![...this.#flows.values()].some((flow) => flow.waitsForParked)) {
        const wasWoken = await this.#alarm.wait(this.#context.settings.leaseMs);
        if (wasWoken) continue;
      }
      try {
        const waitMs = await this.#round();
        backoff.succeeded();
        await this.#alarm.wait(waitMs);
      } catch (error) {
        onError(error);
        await backoff.failed(stopping);
      }
    }
  }

  /** @returns after how many milliseconds the next round is due */
  async #round(): Promise<number> {
    const { settings } = this.#context;
    const places = this.#keeper.slots;
    if (places.length === 0) return settings.parkedPollMs;
    // What is asked about was true before the answer was made.
    const ended = new Map(this.#ended);
    const settling = [...this.#flows.values()].map((flow) => ({ flow, slots: flow.slots.settling }));
    const waits = places.map(({ handler, slot }) => {
      const waitMaxMs = this.#flows.get(handler)?.dispatch.waitMaxMs;
      return { handler, slot, ...(waitMaxMs !== undefined && { waitMaxMs }) };
    });
    const heads = await this.#parked.dueHeads(waits, this.#dueMax, eventBytesMax(settings));
    const due = heads.flatMap((head) => this.#attempt(head) ?? []);
    this.#check(ended, heads);
    const complete = heads.length < this.#dueMax;
    // Suspects are due before all others.
    const hasAllSuspects = complete || heads.some(({ suspect }) => !suspect);
    if (hasAllSuspects) for (const { flow, slots: settled } of settling) this.#settle(flow, settled, due);
    const startedCount = this.#start(due);
    // Heads that nobody here can try now must not hide those behind them.
    const hidden = !complete && startedCount === 0;
    this.#dueMax = hidden
      ? Math.min(this.#dueMax * dueGrowth, settings.dueMax * dueGrowth ** 2)
      : settings.dueMax;
    if (hidden || this.#running.size > 0) return settings.pollMinMs;
    const nextDueMs = (await this.#parked.nextDueMs(places)) ?? Infinity;
    return Math.min(settings.parkedPollMs, nextDueMs > 0 ? nextDueMs : settings.pollMinMs);
  }

  #attempt(head: ParkedHead): Attempt | undefined {
    const flow = this.#flows.get(head.handler);
    const slot = this.#keeper.get(head.token);
    if (flow === undefined || slot === undefined) return undefined;
    return { key: `${head.handler} ${modelKey(head.event)}`, head, slot, flow };
  }

  /** Has models looked at whose attempt has ended and that have no next event that is due. */
  #check(ended: ReadonlyMap<string, Attempt>, heads: readonly ParkedHead[]): void {
    const due = new Set(heads.map((head) => `${head.handler} ${modelKey(head.event)}`));
    for (const [key, { flow, head, slot }] of ended) {
      this.#ended.delete(key);
      if (!due.has(key)) flow.dispatch.check(head.event, slot);
    }
  }

  /** Lets slots be read on in which no suspect is left to be tried; retries, of which there is no end, hold up none. */
  #settle(flow: HandlerFlow, slots: readonly number[], due: readonly Attempt[]): void {
    const busy = new Set<number>();
    for (const attempt of [...due, ...this.#running.values()]) {
      if (attempt.flow === flow && attempt.head.suspect) busy.add(attempt.slot.slot);
    }
    for (const slot of slots) if (!busy.has(slot)) flow.slots.settled(slot);
  }

  /** Starts what there is room for; the rest waits for the attempts that end, or for the next round. */
  #start(due: readonly Attempt[]): number {
    let startedCount = 0;
    const waiting: Attempt[] = [];
    const counts = new Map<HandlerFlow, number>();
    for (const { flow } of this.#running.values()) counts.set(flow, (counts.get(flow) ?? 0) + 1);
    // Who is to be alone goes before those who would be beside.
    for (const attempt of due.toSorted(
      (one, other) => Number(isToBeAlone(other)) - Number(isToBeAlone(one)),
    )) {
      const { key, flow } = attempt;
      const count = counts.get(flow) ?? 0;
      if (flow.paused || this.#running.has(key)) continue;
      if (count >= flow.dispatch.retriesMax) {
        waiting.push(attempt);
        continue;
      }
      counts.set(flow, count + 1);
      this.#running.set(key, attempt);
      flow.knowParked(attempt.slot, attempt.head.event);
      startedCount++;
      void this.#try(attempt);
    }
    this.#waiting = waiting;
    return startedCount;
  }

  async #try(attempt: Attempt): Promise<void> {
    const { flow, head, slot, key } = attempt;
    const { stopping, settings } = this.#context;
    const work = async (alone?: AbortSignal): Promise<void> => {
      if (!stopping.aborted) await flow.dispatch.retry(head, slot, alone);
      this.#running.delete(key);
      // What is left belongs to whoever delivers next.
      if (stopping.aborted) return;
      this.#ended.set(key, attempt);
      this.#start(this.#waiting);
      if (this.#waiting.length === 0) this.#alarm.ring();
    };
    if (!isToBeAlone(attempt)) return this.#gate.runBeside(work);
    // However slow it is, the process ends one day while it is alone, or not at all.
    const aloneMs = settings.suspectAloneMs * 2 ** (head.openCount - 1);
    await this.#gate.runAlone(work, Math.min(aloneMs, aloneMaxMs));
  }
}

/** Whether its process ended during an attempt: only alone is it known which event ends the next one. */
function isToBeAlone({ head }: Attempt): boolean {
  return head.openCount > 0;
}
