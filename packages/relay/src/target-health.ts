import type { Clock } from '@framework/core';

/** The first wait after a failure. Each further one is twice as long, up to the last one. */
const firstWaitMs = 1_000;
const lastWaitMs = 10_000;
/** How long other calls wait for the result of the one that tries a target again. */
const trialMs = 1_000;
/** After how long a target is tried by a message that has not failed: the trials of poisoned ones alone would keep it down for all others. */
const newWaitMs = 2_000;
/** How long messages that have failed leave a target to others that wait for it. */
const othersFirstMs = 6_000;
/** The longest time for which a target is left alone because it has asked for it: a day. */
export const askedMaxMs = 86_400_000;
/** How many failed messages, and how many targets, are remembered; the oldest are forgotten. */
const rememberedMax = 10_000;
/** After how many failures in a row others must have been taken: a broker that starts takes some messages before it takes all. */
const passedMin = 2;

/** A target that has taken nothing since messages for it began to fail. */
interface Failing {
  readonly firstId: string;
  readonly sinceMs: number;
  reason: string;
  /** How often it was found to take nothing; 0 while only one message has failed, which may be to blame itself. */
  downCount: number;
  /** Until when it is sent nothing. */
  untilMs: number;
  /** Until when it is sent nothing that has failed. */
  retryMs: number;
  /** Until when it has asked to be sent nothing; a shorter time that it names later changes nothing. */
  askedUntilMs: number;
  /** When it asked for that. */
  askedMs: number;
  /** Whether a call tries it. */
  isTried: boolean;
  /** Until when messages that have not failed are expected to come back, of those that wait for it. */
  awaitedUntilMs: number;
  /** When the last of them is to come back that is not to wait for longer. */
  turnMs: number;
}

interface Failed {
  readonly target: string;
  /** When it failed last. */
  readonly sinceMs: number;
  readonly count: number;
  /** Whether another message for the target was sent since then, and taken. */
  isPassed: boolean;
  /** After how many failures before that, one after the other, this was so. */
  readonly passedCount: number;
  /** Whether it was found to be to blame, and was not taken since. */
  readonly wasToBlame: boolean;
  /** Whether it was answered with a time to wait, and so not left without an answer. */
  readonly wasAsked: boolean;
}

/**
 * What a relay has seen of its broker's targets in this process. It tells a target that takes nothing now, so that everything for it waits,
 * from messages that fail while others are taken.
 */
export class TargetHealth {
  readonly #clock: Clock;
  readonly #failing = new Map<string, Failing>();
  /** The messages that have failed and are not taken so far, by their ids. */
  readonly #failed = new Map<string, Failed>();
  #lastTakenMs = -Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * The time since a target began to fail after which no target has taken anything, in milliseconds; `undefined` if none has begun to fail
   * since the last message that was taken.
   */
  get outageMs(): number | undefined {
    const since = [...this.#failing.values()].map(({ sinceMs }) => sinceMs);
    const unanswered = since.filter((sinceMs) => sinceMs > this.#lastTakenMs);
    return unanswered.length > 0 ? this.#clock.elapsedMs() - Math.min(...unanswered) : undefined;
  }

  /** How long a message is not sent because of its target, in milliseconds, and why; `undefined` if it may be sent. */
  waitOf(id: string, target: string): { readonly ms: number; readonly reason: string } | undefined {
    const failing = this.#failing.get(target);
    if (failing === undefined) return undefined;
    const hasFailed = this.failureCount(id) > 0;
    const nowMs = this.#clock.elapsedMs();
    const isOthersTurn = failing.awaitedUntilMs > nowMs && failing.retryMs <= nowMs;
    const retryMs = failing.retryMs + (isOthersTurn ? othersFirstMs : 0);
    const ms = (hasFailed ? Math.max(failing.untilMs, retryMs) : failing.untilMs) - nowMs;
    if (ms <= 0) return undefined;
    if (!hasFailed) failing.awaitedUntilMs = Math.max(failing.untilMs, nowMs + lastWaitMs) + newWaitMs;
    return { ms, reason: failing.reason };
  }

  /**
   * When a message is to come back that was not sent because of its target, in milliseconds. Of those that have not failed, one comes every two
   * seconds, and the others after ten: each time that one comes in vain, the row of its model is written.
   */
  turnOf(id: string, target: string): { readonly ms: number; readonly reason: string } | undefined {
    const wait = this.waitOf(id, target);
    const failing = this.#failing.get(target);
    if (wait === undefined || failing === undefined || this.failureCount(id) > 0) return wait;
    // One that has only asked for time takes everything afterwards.
    if (failing.downCount === 0) return wait;
    const nowMs = this.#clock.elapsedMs();
    const lastMs = Math.max(failing.untilMs, nowMs + lastWaitMs);
    const turnMs = Math.max(failing.untilMs, failing.turnMs + newWaitMs);
    if (turnMs > lastMs) return { ...wait, ms: lastMs - nowMs };
    failing.turnMs = turnMs;
    return { ...wait, ms: turnMs - nowMs };
  }

  /** Lets the caller send messages; others wait for what it finds out about targets that are down. Returns the time. */
  begin(messages: Iterable<readonly [id: string, target: string]>): number {
    const nowMs = this.#clock.elapsedMs();
    for (const [id, target] of messages) {
      const failing = this.#failing.get(target);
      if (failing === undefined || failing.downCount === 0) continue;
      failing.untilMs = nowMs + trialMs;
      failing.isTried = true;
      if (this.failureCount(id) === 0) failing.awaitedUntilMs = -Infinity;
    }
    return nowMs;
  }

  /** Notes that a target has taken messages of a call that began at a time. */
  taken(target: string, ids: Iterable<string>, begunMs: number): void {
    this.#lastTakenMs = this.#clock.elapsedMs();
    const failing = this.#failing.get(target);
    // What was sent before the target has asked to be left alone does not take that back.
    if (failing !== undefined && begunMs >= failing.askedMs) this.#failing.delete(target);
    for (const id of ids) this.#failed.delete(id);
    for (const failed of this.#failed.values())
      if (failed.target === target && failed.sinceMs <= begunMs) failed.isPassed = true;
  }

  /** Forgets a message that is not sent again. */
  forget(id: string): void {
    this.#failed.delete(id);
  }

  /**
   * Notes that a message has failed.
   *
   * @param failure.isPassed whether another message for its target was sent later in the same call, and taken
   * @param failure.afterMs how long the target asks to be sent nothing
   * @returns whether the message is to blame and not its target, how long it waits, and whether because it was asked to
   */
  failed(
    id: string,
    target: string,
    {
      isPassed,
      afterMs,
      reason,
    }: { readonly isPassed: boolean; readonly afterMs?: number | undefined; readonly reason: string },
  ): { readonly isToBlame: boolean; readonly waitMs: number; readonly isAsked: boolean } {
    const nowMs = this.#clock.elapsedMs();
    const count = this.failureCount(id) + 1;
    // A broker of one's own may have made it from a text.
    const askedMs = afterMs !== undefined && afterMs > 0 ? Math.min(afterMs, askedMaxMs) : 0;
    const isAsked = askedMs > 0;
    const isBlamed = this.blames(id, target, { isPassed, wasAsked: isAsked });
    // As no attempt is counted then, it stays to blame although no other was taken in between.
    const isToBlame = isBlamed || (isAsked && this.#failed.get(id)?.wasToBlame === true);
    if (!isToBlame) this.#noteTarget(id, target, { askedMs, reason, nowMs });
    const ownWaitMs = Math.min(lastWaitMs, firstWaitMs * 2 ** (count - 1));
    return { isToBlame, waitMs: Math.max(askedMs, ownWaitMs, this.waitOf(id, target)?.ms ?? 0), isAsked };
  }

  /**
   * Notes that there was no answer to a message, or that it has failed.
   *
   * @returns whether others for its target were sent after each of its last failures, and taken
   */
  blames(
    id: string,
    target: string,
    { isPassed = false, wasAsked = false }: { readonly isPassed?: boolean; readonly wasAsked?: boolean } = {},
  ): boolean {
    const last = this.#failed.get(id);
    const passedCount = last?.isPassed === true ? last.passedCount + 1 : 0;
    const count = this.failureCount(id) + 1;
    const isToBlame = passedCount >= passedMin;
    const wasToBlame = isToBlame || last?.wasToBlame === true;
    const sinceMs = this.#clock.elapsedMs();
    remember(this.#failed, id, { target, sinceMs, count, isPassed, passedCount, wasToBlame, wasAsked });
    return isToBlame;
  }

  /** How often a message has failed or was not answered, since it was sent first. */
  failureCount(id: string): number {
    return this.#failed.get(id)?.count ?? 0;
  }

  /** Whether a message is to blame if it gets no answer once more. One that was asked to wait had its answer. */
  isSuspect(id: string): boolean {
    const { isPassed = false, passedCount = 0, wasAsked = false } = this.#failed.get(id) ?? {};
    return isPassed && !wasAsked && passedCount + 1 >= passedMin;
  }

  /** One message may be to blame itself; when a second one fails and none was taken in between, the target is down. */
  #noteTarget(
    id: string,
    target: string,
    { askedMs, reason, nowMs }: { readonly askedMs: number; readonly reason: string; readonly nowMs: number },
  ): void {
    const failing = this.#failing.get(target) ?? {
      firstId: id,
      sinceMs: nowMs,
      reason,
      downCount: 0,
      untilMs: 0,
      retryMs: -Infinity,
      askedUntilMs: 0,
      askedMs: -Infinity,
      isTried: true,
      awaitedUntilMs: -Infinity,
      turnMs: -Infinity,
    };
    remember(this.#failing, target, failing);
    failing.reason = reason;
    if (askedMs > 0) failing.askedMs = nowMs;
    failing.askedUntilMs = Math.max(failing.askedUntilMs, nowMs + askedMs);
    failing.untilMs = Math.max(failing.untilMs, failing.askedUntilMs);
    failing.retryMs = Math.max(failing.retryMs, failing.askedUntilMs);
    // Calls that were under way when another one found it down say nothing new.
    if (!failing.isTried || id === failing.firstId) return;
    const waitMs = Math.min(lastWaitMs, firstWaitMs * 2 ** failing.downCount++);
    failing.untilMs = Math.max(failing.askedUntilMs, nowMs + Math.min(newWaitMs, waitMs));
    failing.retryMs = Math.max(failing.askedUntilMs, nowMs + waitMs);
    failing.isTried = false;
  }
}

/** Sets an entry of a map that forgets the oldest one when it has become large. */
export function remember<T>(map: Map<string, T>, key: string, value: T): void {
  const [oldest] = map.keys();
  if (oldest !== undefined && map.size >= rememberedMax && !map.has(key)) map.delete(oldest);
  map.set(key, value);
}
