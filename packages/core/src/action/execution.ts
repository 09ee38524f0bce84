import { FrameworkError, InvariantViolationError } from '../errors/framework-error.js';
import { isDependencyAborted } from '../group-commit/pending-commit.js';
import { KeyedRequest } from '../idempotency/keyed-request.js';
import { settingsOf } from '../config/settings.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ActionRecord } from '../storage/change-set.js';
import type { RegisteredAction } from './action-registry.js';
import type { Principal } from './action.js';
import {
  Attempt,
  type ExecutionState,
  type ExecutorContext,
  earlierAttempt,
  isSearched,
  replay,
} from './attempt.js';
import { UnknownCommits } from './commit.js';
import type { ExecutionConfiguration } from './options.js';
import { type RetryPolicy, backoffMs, retryRanges } from './retry-policy.js';

/** One execution of an action: attempts until one is committed, or until another one cannot help. */
export class Execution<Params, Result> implements ExecutionState<Params, Result> {
  readonly registered: RegisteredAction<Params, Result>;
  readonly principal: Principal;
  readonly params: Params;
  readonly record: ActionRecord;
  readonly configuration: ExecutionConfiguration;
  readonly shards: Set<ShardIdentifier> = new Set();
  readonly unknownCommits: UnknownCommits<Result>;
  request: KeyedRequest<Result> | undefined;
  readonly #executor: ExecutorContext;

  constructor(
    executor: ExecutorContext,
    given: {
      readonly registered: RegisteredAction<Params, Result>;
      readonly principal: Principal;
      readonly params: Params;
      readonly record: ActionRecord;
      readonly configuration: ExecutionConfiguration;
    },
  ) {
    this.#executor = executor;
    this.registered = given.registered;
    this.principal = given.principal;
    this.params = given.params;
    this.record = given.record;
    this.configuration = { ...given.configuration };
    this.unknownCommits = new UnknownCommits(given.record.id);
  }

  /** The result of the same request under the same key where there is one, else of an attempt. */
  run(): Promise<Result> {
    const { idempotencyKey } = this.configuration;
    return idempotencyKey === undefined ? this.#attempt() : this.#attemptOnce(idempotencyKey);
  }

  async #attemptOnce(key: string): Promise<Result> {
    const { registered, params, record, configuration, shards } = this;
    const { keySearch } = this.#executor;
    if (configuration.allowCrossShard === true) {
      throw new InvariantViolationError(
        `${record.name} was executed with a key and allowCrossShard, but a key is stored on one shard: use a saga`,
      );
    }
    const request = KeyedRequest.of<Result>(key, record, registered, configuration.handledEvent);
    const known = isSearched(configuration) ? await keySearch.everywhere(request.scope) : undefined;
    if (known !== undefined) return replay(request, known, configuration);
    this.request = request;
    try {
      return await this.#attempt();
    } catch (error) {
      if (!KeyedRequest.mayBeOwnEffect(error)) throw error;
      // What refuses the request may be its own earlier effect: a withdrawal that emptied the wallet.
      const stored = await keySearch.afterRefusal(request.scope, params, shards);
      if (stored === undefined) throw error;
      return replay(request, stored, configuration);
    }
  }

  async #attempt(): Promise<Result> {
    const { clock, random, retry } = this.#executor;
    const policy: RetryPolicy = settingsOf('retry', retry, retryRanges, this.configuration.retry);
    let mayDepend = true;
    let number = 1;
    for (;;) {
      try {
        return await new Attempt(this.#executor, this, mayDepend).make();
      } catch (error) {
        // An attempt that was aborted with another action does not count; from now on, this one reads nothing that is not
        // committed.
        if (mayDepend && isDependencyAborted(error)) {
          mayDepend = false;
          continue;
        }
        const isLast = number >= policy.attemptsMax || isPartialCommit(error) || !policy.isRetryable(error);
        if (isLast) return this.#earlierResult(error);
        await clock.sleep(backoffMs(policy, number++, random()));
      }
    }
  }

  /** The result of an attempt whose answer was lost, if what the last one met is its effect; throws the error otherwise. */
  async #earlierResult(error: unknown): Promise<Result> {
    const mayBe = !isPartialCommit(error) && KeyedRequest.mayBeOwnEffect(error);
    const earlier = mayBe ? await earlierAttempt(this.#executor, this, 'all') : undefined;
    if (earlier === undefined) throw error;
    return earlier.result;
  }
}

/** Whether shards hold an attempt: another one would write them again. */
function isPartialCommit(error: unknown): boolean {
  return FrameworkError.find(error)?.code === 'partial-commit';
}
