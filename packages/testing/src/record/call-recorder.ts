import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';

/** What is known of a call: it has its effect, it has none, or nobody knows until it is repeated under its key. */
export type CallOutcome = 'ok' | 'refused' | 'unknown';

/** What one answer says of its call. */
export interface Verdict {
  readonly outcome: CallOutcome;
  /** What is counted, such as `200` or `503 shard-unavailable`. */
  readonly says: string;
  /** Of one that is ok: what every repeat must be answered with as well. */
  readonly result?: unknown;
}

/** A call of a client, over all its repeats. */
export interface RecordedCall<Answer = unknown> {
  /** What it was, for people. */
  readonly name: string;
  /** The idempotency key under which it was sent, each time. */
  readonly key: string;
  readonly outcome: CallOutcome;
  /** What its last answer said. */
  readonly says: string;
  /** All answers that came, the first one first. */
  readonly answers: readonly Answer[];
}

/** How a recorder works. */
export interface CallRecorderOptions<Answer> {
  /**
   * What an answer says of its call. A client that got no answer knows nothing, and neither does one whose answer tells of a failure
   * behind which a commit may have happened.
   *
   * @throws for an answer that the service must never give, which becomes a violation
   */
  readonly judge: (answer: Answer) => Verdict;
  /** How long an answer may take. Default: 30,000 ms. */
  readonly answerTimeoutMs?: number;
}

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
 * Records what clients of a real service were told, while something fails, so that it can be compared with what the databases hold
 * afterwards: see {@link checkRecord}.
 *
 * ```ts
 * const recorder = new CallRecorder<Response>({
 *   judge: ({ status }) => ({ outcome: status < 300 ? 'ok' : status < 500 ? 'refused' : 'unknown', says: `${status}` }),
 * });
 * await recorder.call('lend Emma', (key, signal) =>
 *   fetch(`${url}/loans`, { method: 'POST', headers: { 'idempotency-key': key }, body, signal }),
 * );
 * // … when the fault is over
 * await recorder.settle();
 * ```
 */
export class CallRecorder<Answer> {
  /** How often something was said, repeats included. */
  readonly counts = new Map<string, number>();
  /** What no answer may say. */
  readonly violations: string[] = [];
  readonly #judge: (answer: Answer) => Verdict;
  readonly #answerTimeoutMs: number;
  readonly #calls: Entry<Answer>[] = [];

  constructor({ judge, answerTimeoutMs = answerTimeoutDefaultMs }: CallRecorderOptions<Answer>) {
    this.#judge = judge;
    this.#answerTimeoutMs = answerTimeoutMs;
  }

  /** All calls, in the order in which they began. */
  get calls(): readonly RecordedCall<Answer>[] {
    return this.#calls;
  }

  /**
   * Makes a call under a key of its own. Resolves when it is answered, or fails, which is no error here: then its outcome is unknown.
   *
   * @param name what it is, for people
   * @param send sends it under a key, and gives up when the signal is aborted; called again for each repeat
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
   * Repeats a call under its key, as a client does that has lost the answer: it must have no further effect, and the same result.
   *
   * @throws RangeError for a call of another recorder
   */
  async repeat(call: RecordedCall<Answer>): Promise<void> {
    const entry = this.#calls.find((each) => each === call);
    if (entry === undefined)
      throw new RangeError(`${call.name} was not recorded here: pass a call of .calls`);
    await this.#send(entry);
  }

  /**
   * Repeats every call whose outcome is unknown until it is known.
   *
   * @param options.withinMs how long that may take. Default: 60,000 ms
   * @throws Error with the calls that are still unknown then, and what their last answers said
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
    throw new Error(`${waiting.length} calls have no known outcome within ${withinMs} ms: ${list}`);
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
      this.violations.push(`${call.name} (${call.key}) was answered as nothing may be: ${says}`);
      return { outcome: 'unknown', says };
    }
  }

  #compare({ name, key, result }: Entry<Answer>, { outcome, says, result: repeated }: Verdict): void {
    const what = `${name} (${key}) was ok, and its repeat`;
    if (outcome === 'refused') this.violations.push(`${what} was refused: ${says}`);
    else if (!isDeepStrictEqual(result, repeated)) this.violations.push(`${what} has another result`);
  }
}
