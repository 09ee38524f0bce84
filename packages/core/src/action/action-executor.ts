import { context as traceContext, propagation } from '@opentelemetry/api';
import { v7 as uuidv7 } from 'uuid';
import { type Clock, systemClock } from '../clock.js';
import { NestedExecutionException } from '../errors/action-exceptions.js';
import { InvariantViolation } from '../errors/invariant-violation.js';
import { LimitExceededException } from '../errors/limit-exceeded-exception.js';
import { CrossShardException } from '../errors/sharding-exceptions.js';
import { checkText, exactJson } from '../model/exact-json.js';
import { modelNameOf } from '../model/model-class.js';
import type { ActionRecord, ChangeSet } from '../persistence/change-set.js';
import type { Repository } from '../persistence/repository.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import { type ActionClass, perform } from './action.js';
import { ActionRegistry, type AnyAction, type RegisteredAction } from './action-registry.js';
import { commit } from './commit.js';
import { currentExecution, runAs } from './execution.js';
import type { ExecutionConfiguration } from './execution-configuration.js';
import { type ExecutionLimits, defaultExecutionLimits } from './execution-limits.js';
import { Plan, type ShardPlan } from './plan.js';
import type { Principal } from './principal.js';
import { type RetryPolicy, backoffMs, defaultRetryPolicy } from './retry-policy.js';
import { withDefaults } from './with-defaults.js';

/** What an executor needs. */
export interface ExecutorOptions {
  /** Dot-separated identifiers, written with every event. */
  readonly namespace: string;
  readonly databases: DatabaseRegistry;
  /** One for each class of models that actions stage. */
  readonly repositories: readonly Repository[];
  readonly actions: readonly AnyAction[] | ActionRegistry;
  /** What to change in the default policy: 5 attempts, backoff from 10 ms to 1 s with full jitter. */
  readonly retry?: Partial<RetryPolicy>;
  /** What to change in the default limits. */
  readonly limits?: Partial<ExecutionLimits>;
  /** Default: the computer's clock. */
  readonly clock?: Clock;
  /** Gives a number from 0 to 1, for jitter. Default: `Math.random`. */
  readonly random?: () => number;
}

/** Runs actions: performs them, commits what they staged, and runs them again when another one was faster. */
export class ActionExecutor {
  readonly #namespace: string;
  readonly #databases: DatabaseRegistry;
  readonly #repositories: ReadonlyMap<unknown, Repository>;
  readonly #actions: ActionRegistry;
  readonly #retry: RetryPolicy;
  readonly #limits: ExecutionLimits;
  readonly #clock: Clock;
  readonly #random: () => number;

  /** @throws InvariantViolation `invariant-violation` when two repositories store the same model */
  constructor(options: ExecutorOptions) {
    this.#namespace = options.namespace;
    this.#databases = options.databases;
    this.#repositories = byModel(options.repositories);
    this.#actions =
      options.actions instanceof ActionRegistry ? options.actions : new ActionRegistry(options.actions);
    this.#retry = withDefaults(defaultRetryPolicy, options.retry);
    this.#limits = withDefaults(defaultExecutionLimits, options.limits);
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
  }

  /**
   * Executes an action and resolves with its result when everything it staged is committed.
   *
   * @throws CrossShardException `cross-shard` when the plan spans shards and that is not allowed; nothing written
   * @throws StaleRecordException `stale-record` when the last attempt was stale too; nothing written
   * @throws PartialCommitException `partial-commit`, only with `allowCrossShard`
   * @throws CommitOutcomeUnknownException `commit-outcome-unknown` when the outcome could not be learnt
   * @throws whatever perform throws, after which nothing is written
   */
  async execute<Params, Result>(
    principal: Principal,
    actionClass: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    configuration: ExecutionConfiguration = {},
  ): Promise<Result> {
    const registered = this.#actions.get(actionClass);
    const outer = currentExecution();
    if (outer !== undefined && !outer.plan.sealed)
      throw new NestedExecutionException(registered.name, outer.actionName);
    const record = this.#record(registered, principal, params, configuration);
    const policy = withDefaults(this.#retry, configuration.retry);
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#attempt(
          registered,
          principal,
          params,
          record,
          configuration.allowCrossShard ?? false,
        );
      } catch (error) {
        if (attempt >= policy.attemptsMax || !policy.retries(error)) throw error;
        await this.#clock.sleep(backoffMs(policy, attempt, this.#random()));
      }
    }
  }

  async #attempt<Params, Result>(
    registered: RegisteredAction<Params, Result>,
    principal: Principal,
    params: Params,
    action: ActionRecord,
    allowCrossShard: boolean,
  ): Promise<Result> {
    const plan = new Plan({
      actionName: action.name,
      repositories: this.#repositories,
      limits: this.#limits,
      clock: this.#clock,
    });
    const { result, staged } = await performed(registered, principal, params, plan);
    if (staged.length > 1 && !allowCrossShard) {
      throw new CrossShardException(
        action.name,
        staged.map(({ shard }) => shard),
      );
    }
    await commit(this.#changeSets(staged, action), this.#databases);
    return result;
  }

  #record(
    { name, encodeParams }: RegisteredAction<never, unknown>,
    principal: Principal,
    params: unknown,
    { headers }: ExecutionConfiguration,
  ): ActionRecord {
    const carrier: Record<string, string> = { ...headers };
    propagation.inject(traceContext.active(), carrier);
    checkText(principal.name, `principal of ${name}`);
    return {
      id: uuidv7(),
      name,
      params: this.#bounded(`params of ${name}`, encodeParams(params)),
      namespace: this.#namespace,
      principal: principal.name,
      headers: this.#bounded(`headers of ${name}`, exactJson(carrier, `${name} headers`)),
      startedDate: this.#clock.now(),
    };
  }

  #bounded(what: string, json: string): string {
    const { payloadCharactersMax } = this.#limits;
    if (json.length <= payloadCharactersMax) return json;
    const message = `The ${what} have ${json.length} characters: keep them below ${payloadCharactersMax}`;
    throw new LimitExceededException('payloadCharactersMax', payloadCharactersMax, message);
  }

  /** An action that stages nothing is recorded on the default shard. */
  #changeSets(staged: readonly ShardPlan[], action: ActionRecord): readonly ChangeSet[] {
    if (staged.length === 0)
      return [{ shard: this.#databases.defaultShard, action, changes: [], events: [] }];
    return staged.map((shardPlan) => ({ ...shardPlan, action }));
  }
}

/** Performs the action and seals its plan, also when it throws. */
async function performed<Params, Result>(
  { action, name }: RegisteredAction<Params, Result>,
  principal: Principal,
  params: Params,
  plan: Plan,
): Promise<{ readonly result: Result; readonly staged: readonly ShardPlan[] }> {
  try {
    const result = await runAs({ actionName: name, plan }, () => perform(action, principal, params));
    return { result, staged: plan.seal() };
  } finally {
    plan.seal();
  }
}

function byModel(repositories: readonly Repository[]): ReadonlyMap<unknown, Repository> {
  const map = new Map<unknown, Repository>();
  for (const repository of repositories) {
    if (map.has(repository.model)) {
      throw new InvariantViolation(`Two repositories store ${modelNameOf(repository.model)}: pass one`);
    }
    map.set(repository.model, repository);
  }
  return map;
}
