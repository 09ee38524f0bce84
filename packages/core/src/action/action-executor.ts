import { type Clock, systemClock } from '../clock.js';
import { checkNamespace } from '../config/framework-config.js';
import {
  defaultExecutionLimits,
  defaultIdempotencySettings,
  executionLimitRanges,
  idempotencyRanges,
  settingsOf,
} from '../config/settings.js';
import { NestedExecutionError } from '../errors/action-errors.js';
import { FrameworkError, InvariantViolationError } from '../errors/framework-error.js';
import { isDependencyAborted } from '../group-commit/pending-commit.js';
import { KeySearch } from '../idempotency/key-search.js';
import { KeyedRequest } from '../idempotency/keyed-request.js';
import type { EventClass } from '../model/model-event.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import { ActionRecorder } from './action-recorder.js';
import { ActionRegistry } from './action-registry.js';
import type { ActionClass, ActionDeclaration, Principal } from './action.js';
import { currentAttempt } from './attempt-context.js';
import { Attempts } from './attempt.js';
import { UnknownCommits } from './commit.js';
import { type Run, isSearched, replay } from './execution.js';
import type { ExecutionConfiguration, ExecutorOptions } from './options.js';
import { copyOfParams } from './params.js';
import { type RetryPolicy, backoffMs, defaultRetryPolicy, retryRanges } from './retry-policy.js';

/** Runs actions: performs them, commits what they staged, and runs them again when another one was faster. */
export class ActionExecutor {
  readonly #actions: ActionRegistry;
  readonly #recorder: ActionRecorder;
  readonly #retry: RetryPolicy;
  readonly #keySearch: KeySearch;
  readonly #attempts: Attempts;
  readonly #clock: Clock;
  readonly #random: () => number;

  /**
   * @throws InvariantViolationError `invariant-violation` when two repositories store the same model, or models of one name, or
   * the result of an action is a model that none of them can write as JSON
   * @throws ConfigurationError `invalid-configuration` for a namespace that the configuration refuses, too, and a setting that
   * is unknown or out of its range
   */
  constructor(options: ExecutorOptions) {
    const actions = options.actions instanceof ActionRegistry ? options.actions.actions : options.actions;
    this.#actions = new ActionRegistry(actions, options.repositories);
    checkNamespace(options.namespace);
    this.#retry = settingsOf('retry', defaultRetryPolicy, retryRanges, options.retry);
    const limits = settingsOf('limits', defaultExecutionLimits, executionLimitRanges, options.limits);
    const idempotency = settingsOf(
      'idempotency',
      defaultIdempotencySettings,
      idempotencyRanges,
      options.idempotency,
    );
    this.#keySearch = new KeySearch(options.databases, idempotency.searchWaitMs);
    this.#clock = options.clock ?? systemClock;
    const keySearch = this.#keySearch;
    this.#attempts = new Attempts(options, { clock: this.#clock, limits, idempotency, keySearch });
    // oxlint-disable-next-line no-restricted-properties -- the default of the port
    this.#random = options.random ?? Math.random;
    this.#recorder = new ActionRecorder(options.namespace, limits, this.#clock);
  }

  /**
   * Calls back at once after each commit, with its shard: wakes what waits for new events in this process.
   *
   * @returns what ends it
   */
  onCommit(listener: (shard: ShardIdentifier) => void): () => void {
    return this.#attempts.onCommit(listener);
  }

  /**
   * Claims the `event_type` of each class for it, as staging an event does: no other class can be staged under it.
   *
   * @throws InvariantViolationError `invariant-violation` when another class has it already
   */
  claimEventTypes(eventClasses: Iterable<EventClass>): void {
    for (const eventClass of eventClasses) this.#attempts.eventTypes.claim(eventClass);
  }

  /**
   * Executes an action and resolves with its result when everything it staged is committed.
   *
   * What the caller changes in the params afterwards changes nothing here: they are copied at once, and for each attempt.
   *
   * @throws CrossShardError `cross-shard` when the plan spans shards and that is not allowed; nothing written
   * @throws StaleRecordError `stale-record` when the last attempt was stale too; nothing written
   * @throws PartialCommitError `partial-commit`, only with `allowCrossShard`
   * @throws CommitOutcomeUnknownError `commit-outcome-unknown` when the outcome could not be learnt
   * @throws IdempotencyKeyReusedError `idempotency-key-reused` when the key belongs to another request
   * @throws InvalidIdempotencyKeyError `invalid-idempotency-key`
   * @throws ConfigurationError `invalid-configuration` when `retry` has a setting that is out of its range
   * @throws whatever perform throws, after which nothing is written
   */
  async execute<Params, Result>(
    principal: Principal,
    actionClass: ActionClass<Params, Result> & ActionDeclaration<NoInfer<Params>, NoInfer<Result>>,
    params: NoInfer<Params>,
    configuration: ExecutionConfiguration = {},
  ): Promise<Result> {
    const registered = this.#actions.get(actionClass);
    const outer = currentAttempt();
    if (outer !== undefined && !outer.plan.sealed)
      throw new NestedExecutionError(registered.name, outer.actionName);
    // What is recorded and what is performed are the same, also where the caller's params say something else each time.
    const copy = copyOfParams(params);
    const record = this.#recorder.record(registered, principal, copy, configuration);
    const run: Run<Params, Result> = {
      registered,
      principal,
      params: copy,
      record,
      configuration: { ...configuration },
      request: undefined,
      shards: new Set(),
      unknownCommits: new UnknownCommits(record.id),
    };
    const { idempotencyKey } = configuration;
    return idempotencyKey === undefined ? this.#run(run) : this.#runOnce(run, idempotencyKey);
  }

  /** The result of the same request under the same key, else of this execution. */
  async #runOnce<Params, Result>(run: Run<Params, Result>, key: string): Promise<Result> {
    const { registered, params, record, configuration } = run;
    if (configuration.allowCrossShard === true) {
      throw new InvariantViolationError(
        `${record.name} was executed with a key and allowCrossShard, but a key is stored on one shard: use a saga`,
      );
    }
    const request = KeyedRequest.of<Result>(key, record, registered, configuration.handledEvent);
    const known = isSearched(configuration) ? await this.#keySearch.everywhere(request.scope) : undefined;
    if (known !== undefined) return replay(request, known, configuration);
    try {
      return await this.#run({ ...run, request });
    } catch (error) {
      if (!KeyedRequest.mayBeOwnEffect(error)) throw error;
      // What refuses the request may be its own earlier effect: a withdrawal that emptied the wallet.
      const stored = await this.#keySearch.afterRefusal(request.scope, params, run.shards);
      if (stored === undefined) throw error;
      return replay(request, stored, configuration);
    }
  }

  async #run<Params, Result>(run: Run<Params, Result>): Promise<Result> {
    const policy = settingsOf('retry', this.#retry, retryRanges, run.configuration.retry);
    let mayDepend = true;
    let attempt = 1;
    for (;;) {
      try {
        return await this.#attempts.make(run, mayDepend);
      } catch (error) {
        // An attempt that was lost with another action does not count; from now on, this one reads nothing that is not
        // committed.
        if (mayDepend && isDependencyAborted(error)) {
          mayDepend = false;
          continue;
        }
        const isLast = attempt >= policy.attemptsMax || isPartialCommit(error) || !policy.isRetryable(error);
        if (isLast) return this.#earlierResult(run, error);
        await this.#clock.sleep(backoffMs(policy, attempt++, this.#random()));
      }
    }
  }

  /** The result of an attempt whose answer was lost, if what the last one met is its effect; throws the error otherwise. */
  async #earlierResult<Params, Result>(run: Run<Params, Result>, error: unknown): Promise<Result> {
    const mayBe = !isPartialCommit(error) && KeyedRequest.mayBeOwnEffect(error);
    const earlier = mayBe ? await this.#attempts.earlierResult(run) : undefined;
    if (earlier === undefined) throw error;
    return earlier.result;
  }
}

/** Whether shards hold an attempt: another one would write them again. */
function isPartialCommit(error: unknown): boolean {
  return FrameworkError.find(error)?.code === 'partial-commit';
}
