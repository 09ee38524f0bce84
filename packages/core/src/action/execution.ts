import { backoffMs, retryRanges, settingsOf } from '../config/settings.js';
import { FrameworkError, InvariantViolationError } from '../errors/framework-error.js';
import { isDependencyAborted } from '../group-commit/pending-commit.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import { KeyedRequest } from '../idempotency/keyed-request.js';
import type { ActionRecord } from '../storage/change-set.js';
import type { RegisteredAction } from './action-registry.js';
import type { Principal } from './action.js';
import { Attempt, type AttemptedExecution, type ExecutionEnvironment } from './attempt.js';
import { UnknownCommits } from './commit.js';
import type { ExecutionConfiguration } from './execution-configuration.js';

/**
 * One execution of an action, over all its attempts:
 *
 *     run ──▶ is the key known? ──no──▶ attempt ──▶ result
 *                  │                     ▲   │
 *                 yes            backoff └───┤ an error after which another attempt can succeed
 *                  ▼                         ▼
 *                replay ◀──yes── does the error come from an earlier effect of the request? ──no──▶ error
 *
 * Without an idempotency key, there is no replay, and the earlier effect can only be that of an attempt of this execution whose
 * commit got no answer: its result is returned. Before each further attempt, the log is asked whether one of these was committed.
 */
export class Execution<Params, Result> implements AttemptedExecution<Params, Result> {
  readonly registered: RegisteredAction<Params, Result>;
  readonly principal: Principal;
  readonly newParams: () => Params;
  readonly record: ActionRecord;
  readonly configuration: ExecutionConfiguration;
  readonly request: KeyedRequest<Result> | undefined;
  readonly shards: Set<ShardIdentifier> = new Set();
  readonly unknownCommits: UnknownCommits<Result>;
  readonly #environment: ExecutionEnvironment;

  /**
   * @throws InvariantViolationError `invariant-violation` when it has an idempotency key and may span shards
   * @throws InvalidIdempotencyKeyError `invalid-idempotency-key` when its key is empty, too long or not storable
   */
  constructor(
    environment: ExecutionEnvironment,
    asked: Pick<
      Execution<Params, Result>,
      'registered' | 'principal' | 'newParams' | 'record' | 'configuration'
    >,
  ) {
    const { registered, record, configuration } = asked;
    this.#environment = environment;
    this.registered = registered;
    this.principal = asked.principal;
    this.newParams = asked.newParams;
    this.record = record;
    this.configuration = configuration;
    this.unknownCommits = new UnknownCommits(record.id);
    const { idempotencyKey, allowCrossShard } = configuration;
    if (idempotencyKey === undefined) return;
    if (allowCrossShard === true) {
      throw new InvariantViolationError(
        `${record.name} was executed with a key and allowCrossShard, but a key is stored on one shard: use a saga`,
      );
    }
    this.request = new KeyedRequest(idempotencyKey, record, registered, configuration);
  }

  /** The result of the same request with the same key if there is one, otherwise that of an attempt. */
  run(): Promise<Result> {
    return this.request === undefined ? this.#attempt() : this.#runOnce(this.request);
  }

  async #runOnce(request: KeyedRequest<Result>): Promise<Result> {
    const { keySearch } = this.#environment;
    const known = request.isSearchedEverywhere ? await keySearch.everywhere(request) : undefined;
    if (known !== undefined) return request.replay(known);
    try {
      return await this.#attempt();
    } catch (error) {
      if (!KeyedRequest.mayBeOwnEffect(error)) throw error;
      // The cause of the refusal may be the request's own earlier effect, such as a withdrawal that emptied the wallet.
      const stored = await keySearch.afterRefusal(request, this.newParams(), this.shards);
      if (stored === undefined) throw error;
      return request.replay(stored);
    }
  }

  /** Makes attempts until one is committed, or another one cannot help. */
  async #attempt(): Promise<Result> {
    const { retry, clock, random } = this.#environment;
    const policy = settingsOf('retry', retry, retryRanges, this.configuration.retry);
    let mayDepend = true;
    let count = 1;
    let number = 1;
    for (;;) {
      try {
        const earlier = await this.earlierResult('open');
        if (earlier !== undefined) return earlier.result;
        return await new Attempt(this.#environment, this, { number: number++, mayDepend }).make();
      } catch (error) {
        // An attempt that was aborted together with another action does not count. From now on, this execution reads only
        // what is committed.
        if (mayDepend && isDependencyAborted(error)) {
          mayDepend = false;
          continue;
        }
        const isLast = count >= policy.attemptsMax || isPartialCommit(error) || !policy.isRetryable(error);
        if (isLast) return this.#ownEffect(error);
        await clock.sleep(backoffMs(policy, count++, random()));
      }
    }
  }

  /** Returns the result of an attempt whose answer was lost, if the last error comes from its effect; otherwise throws the error. */
  async #ownEffect(error: unknown): Promise<Result> {
    const mayBe = !isPartialCommit(error) && KeyedRequest.mayBeOwnEffect(error);
    const earlier = mayBe ? await this.earlierResult('all') : undefined;
    if (earlier === undefined) throw error;
    return earlier.result;
  }

  earlierResult(asked: 'all' | 'open'): Promise<{ readonly result: Result } | undefined> {
    const { databases, listeners } = this.#environment;
    return this.unknownCommits.happened(databases, asked, (shard) => listeners.tell(shard));
  }
}

/** Whether some shards have committed the attempt already: another one would write to them again. */
function isPartialCommit(error: unknown): boolean {
  return FrameworkError.find(error)?.code === 'partial-commit';
}
