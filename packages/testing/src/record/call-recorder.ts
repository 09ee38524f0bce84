import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';

/** What is known about a call: it has its effect, it has none, or nobody knows until it is repeated with its key. */
export type CallOutcome = 'ok' | 'refused' | 'unknown';

/** What one answer says about its call. */
export interface Verdict {
  readonly outcome: CallOutcome;
  /** The label under which the answer is counted, such as `200` or `503 shard-unavailable`. */
  readonly says: string;
  /** The result of a successful call, with which every repeat must be answered, too. */
  readonly result?: unknown;
}

/** A client's call, including all its repeats. */
export interface RecordedCall<Answer = unknown> {
  /** Describes the call for people. */
  readonly name: string;
  /** The idempotency key with which it was sent each time. */
  readonly key: string;
  readonly outcome: CallOutcome;
  /** The label of its last answer. */
  readonly says: string;
  /** All answers in the order of their arrival. */
  readonly answers: readonly Answer[];
}

/** The options of a recorder. */
export interface CallRecorderOptions<Answer> {
  /**
   * Says what an answer means for its call. The outcome is unknown if there is no answer, or an answer that reports a
   * failure after which the commit may have happened.
   *
   * @throws for an answer that the service must never give, which becomes a violation
   */
  readonly judge: (answer: Answer) => Verdict;
  /** How long an answer may take. Default: 30,000 ms. */
  readonly answerTimeoutMs?: number;
}

/** Sends one request with an idempotency key, until the signal is aborted. */
type Send<Answer> = (key: string, signal: AbortSignal) => Promise<Answer>;

interface Entry<Answer> extends RecordedCall<Answer> {
  outcome: CallOutcome;
  says: string;
  result: unknown;
  readonly answers: Answer[];
  readonly send: Send<Answer>;
}

const answerTimeoutDefaultMs = 30_000;
const settleDefaultMs = 60_000;
const repeatPauseMs = 200;
/** How many calls are repeated at a time. */
const repeatingMax = 10;

/**
 * Records what clients of a real service were told during a fault, so that it can be compared with the databases
 * afterwards: see {@link checkRecord}.
 *
 * ```ts
 * const recorder = new CallRecorder<Response>({
 *   judge: ({ status }) => ({
 *     outcome: status < 300 ? 'ok' : status < 500 ? 'refused' : 'unknown',
 *     says: `${status}`,
 *   }),
 * });
 * await recorder.call('lend Emma', (key, signal) =>
 *   fetch(`${url}/loans`, { method: 'POST', headers: { 'idempotency-key': key }, body, signal }),
 * );
 * // … when the fault is over
 * await recorder.settle();
 * ```
 */
export class CallRecorder<Answer> {
  /** How often each label was given, including repeats. */
  readonly counts = new Map<string, number>();
  /** Answers that the service must never give. */
  readonly violations: string[] = [];
  readonly #judge: (answer: Answer) => Verdict;
  readonly #answerTimeoutMs: number;
  readonly #calls: Entry<Answer>[] = [];

  constructor({ judge, answerTimeoutMs = answerTimeoutDefaultMs }: CallRecorderOptions<Answer>) {
    this.#judge = judge;
    this.#answerTimeoutMs = answerTimeoutMs;
  }

  /** All calls, in the order in which they started. */
  get calls(): readonly RecordedCall<Answer>[] {
    return this.#calls;
  }

  /**
   * Makes a call with a new key. Resolves when the call is answered or fails: a failure is not thrown, but leaves the
   * outcome unknown.
   *
   * @param name describes the call for people
   * @param send sends the call with a key, and gives up when the signal is aborted; it is called again for each repeat
   */
  async call(name: string, send: Send<Answer>): Promise<RecordedCall<Answer>> {
    const call: Entry<Answer> = {
      name,
      key: randomUUID(),
      outcome: 'unknown',
      says: 'nothing',
      result: undefined,
      answers: [],
      send,
    };
    this.#calls.push(call);
    await this.#send(call);
    return call;
  }

  /**
   * Repeats a call with its key, like a client that has lost the answer. The repeat must have no further effect, and
   * the same result.
   *
   * @throws RangeError for a call of another recorder
   */
  async repeat(call: RecordedCall<Answer>): Promise<void> {
    const entry = this.#calls.find((each) => each === call);
    if (entry === undefined)
      throw new RangeError(`The call ${call.name} is not one of this recorder: pass an item of calls`);
    await this.#send(entry);
  }

  /**
   * Repeats every call whose outcome is unknown until it is known.
   *
   * @param options.withinMs how long that may take. Default: 60,000 ms
   * @throws Error with the calls that are still unknown after that, and the labels of their last answers
   */
  async settle({ withinMs = settleDefaultMs }: { readonly withinMs?: number } = {}): Promise<void> {
    const endMs = performance.now() + withinMs;
    const waiting = this.#calls.filter(({ outcome }) => outcome === 'unknown');
    const repeatInTurn = async (): Promise<void> => {
      for (let call = waiting.shift(); call !== undefined; call = waiting.shift()) {
        await this.#send(call);
        if (call.outcome !== 'unknown') continue;
        waiting.push(call);
        if (performance.now() > endMs) return;
        await delay(repeatPauseMs);
      }
    };
    await Promise.all(Array.from({ length: repeatingMax }, repeatInTurn));
    if (waiting.length === 0) return;
    const list = waiting.map(({ name, key, says }) => `${name} (${key}): ${says}`).join('; ');
    throw new Error(`Calls without a known outcome after ${withinMs} ms: ${list}`);
  }

  async #send(call: Entry<Answer>): Promise<void> {
    const verdict = await this.#verdictOf(call);
    this.counts.set(verdict.says, (this.counts.get(verdict.says) ?? 0) + 1);
    call.says = verdict.says;
    if (verdict.outcome === 'unknown') return;
    if (call.outcome === 'ok') this.#compare(call, verdict);
    if (verdict.outcome === 'ok' && call.outcome !== 'ok') call.result = verdict.result;
    if (call.outcome !== 'ok') call.outcome = verdict.outcome;
  }

  async #verdictOf(call: Entry<Answer>): Promise<Verdict> {
    let answer: Answer;
    try {
      answer = await call.send(call.key, AbortSignal.timeout(this.#answerTimeoutMs));
    } catch {
      return { outcome: 'unknown', says: 'none' };
    }
    call.answers.push(answer);
    try {
      return this.#judge(answer);
    } catch (error) {
      const says = error instanceof Error ? error.message : String(error);
      this.violations.push(`${call.name} (${call.key}) got an answer that must never be given: ${says}`);
      return { outcome: 'unknown', says };
    }
  }

  #compare({ name, key, result }: Entry<Answer>, { outcome, says, result: repeated }: Verdict): void {
    const what = `${name} (${key}) was ok, and its repeat`;
    if (outcome === 'refused') this.violations.push(`${what} was refused: ${says}`);
    else if (!isDeepStrictEqual(result, repeated)) this.violations.push(`${what} has another result`);
  }
}
