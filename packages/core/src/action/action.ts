import type * as z from 'zod';

import type { Clock } from '../clock.js';
import { PlanUnavailableError } from '../errors/action-errors.js';
import { type ModelClass, durableName } from '../id/model-class.js';
import type { HandledEvent } from '../storage/idempotency-keys.js';
import { currentAttempt } from '../storage/transaction-manager.js';
import { Plan } from './plan.js';

declare const paramsOf: unique symbol;

/**
 * One business operation: reads models, decides, and stages new versions on its plan; writes nothing itself.
 *
 * One instance serves all executions at once, so it holds no state of any of them. When an attempt fails on a
 * stale record, `perform` runs again with fresh reads and a fresh plan.
 *
 * @example apps/counter/src/counter-actions.ts
 *
 * ```ts
 * export class IncreaseCounterAction extends Action<Increase, Counter> {
 *   static readonly params = increase;
 *   static readonly result = Counter;
 *   readonly #counters: Repository<Counter>;
 *
 *   constructor(clock: Clock, counters: Repository<Counter>) {
 *     super(clock);
 *     this.#counters = counters;
 *   }
 *
 *   protected async perform(_principal: Principal, { id, by }: Increase): Promise<Counter> {
 *     const counter = await this.#counters.getById(id);
 *     return this.plan().update(counter.increase(by));
 *   }
 * }
 * ```
 */
export abstract class Action<Params, Result = void> {
  /** Exists only in the type: a schema that leaves out one of the params does not compile. */
  declare readonly [paramsOf]: (params: Params) => void;

  /** Decides who may execute the action; asked in each attempt, before `perform`. Default: everybody may. */
  declare readonly policy?: ActionPolicy<Params>;

  /** @param policy decides who may execute the action, unless the class has a field of this name */
  constructor(
    protected readonly clock: Clock,
    policy?: ActionPolicy<Params>,
  ) {
    // Not assigned without need: it would hide a getter of the class.
    if (policy !== undefined) this.policy = policy;
  }

  /**
   * Performs the action. Await everything: the plan is sealed when it returns.
   *
   * @param params what the schema of the params reads from the log, or without a schema a copy of what the caller passed, of which
   * instances of classes are not copied; new for each attempt
   */
  protected abstract perform(principal: Principal, params: Params): Promise<Result>;

  /**
   * The plan of the current attempt.
   *
   * @throws PlanUnavailableError `plan-unavailable` outside of perform, also in the action's policy
   */
  protected plan(): Plan {
    const plan = currentAttempt()?.plan;
    if (plan instanceof Plan) return plan;
    throw new PlanUnavailableError(this.constructor.name);
  }
}

/** The class of an action, as a value to pass to `execute`, with the types of its params and result. */
export type ActionClass<Params, Result> = abstract new (...args: never[]) => Action<Params, Result>;

/** Performs an action. Only the executor calls it, because only the executor opens the plan that an action needs. */
export function perform<Params, Result>(
  action: Action<Params, Result>,
  principal: Principal,
  params: Params,
): Promise<Result> {
  return action['perform'](principal, params);
}

/** What an action declares in static fields with these names. They need no decorator, so they work with every compiler. */
export interface ActionDeclaration<Params, Result> {
  /** The durable `action_name` in the log. Default: the class name. */
  readonly actionName?: string;
  /**
   * The schema of the params: it checks them before perform, and writes them to the log.
   *
   * It must work in both directions: codecs are fine, one-way transforms are not.
   */
  readonly params?: z.ZodType<Params>;
  /**
   * How the result is written beside an idempotency key, and read when the request is repeated: the class of a model, which its
   * repository writes, or a schema, which must also work in both directions.
   *
   * Not needed if no key is used, or if the result is `undefined`.
   */
  readonly result?: z.ZodType<Result> | ModelClass<Result>;
}

/** What the decorator of an action declares: the same, with the name as `name`. */
export interface ActionOptions<Params, Result = never> extends Pick<
  ActionDeclaration<Params, Result>,
  'params' | 'result'
> {
  /** The durable `action_name` in the log. Default: the static `actionName`, otherwise the class name. */
  readonly name?: string;
}

const declared = new Map<ActionClass<never, unknown>, ActionOptions<never>>();

/**
 * Marks an action for discovery by {@link ActionRegistry.discover}, and can declare what the class does not declare in static
 * fields.
 *
 * Works as a standard decorator, as a legacy decorator, and as a call: `FrameworkAction()(WalletCloseAction)`.
 */
export function FrameworkAction<Params = never, Result = unknown>(
  options: ActionOptions<Params, Result> = {},
): (action: ActionClass<Params, Result>) => void {
  return (action) => {
    declared.set(action, options as ActionOptions<never>);
  };
}

/** What a class declares, in its decorator or otherwise in static fields. */
export function declaredOptions(action: ActionClass<never, unknown>): ActionOptions<never> {
  const { actionName, params, result } = action as ActionDeclaration<never, never>;
  // An option that the decorator leaves undefined must not replace the static field.
  const marked = declared.get(action);
  const name = marked?.name ?? actionName;
  const paramsSchema = marked?.params ?? params;
  const stored = marked?.result ?? result;
  return {
    ...(name !== undefined && { name }),
    ...(paramsSchema !== undefined && { params: paramsSchema }),
    ...(stored !== undefined && { result: stored }),
  };
}

/**
 * The durable name of an action in the log: the declared one, otherwise the class name.
 *
 * @throws InvariantViolationError `invariant-violation` when a bundler has renamed a class that declares no name
 */
export function actionNameOf(action: ActionClass<never, unknown>): string {
  return durableName(action, declaredOptions(action).name, 'static readonly actionName');
}

/** Every class that has been marked and imported so far. */
export function discoveredActions(): readonly ActionClass<never, unknown>[] {
  return [...declared.keys()];
}

/** The party on whose behalf an action is executed; its name is recorded with every event of the action. */
export interface Principal {
  /** Identifies the user or the system, for example with the subject of a token. At most 255 characters. */
  readonly name: string;
  /** What the party may do, in the application's own words. Not recorded: a handler's principal has none. */
  readonly roles?: readonly string[];
  /** What else is known of the party, for example the claims of its token. Not recorded either. */
  readonly claims?: Readonly<Record<string, unknown>>;
}

/**
 * Port: decides who may execute an action, from the principal, the params, and what it reads by its repositories.
 *
 * It is asked inside of each attempt, so a model that it reads by id, one or several, is the same object that `perform` then gets
 * from the same repository, for one read. With another repository or a query of its own, `perform` may get a later version, about
 * which nobody has decided. A policy decides without side effects, and has no plan.
 *
 * @example packages/core/src/action/action-policy.test.ts
 *
 * ```ts
 * function ownerOnly(wallets: Wallets): ActionPolicy<OfWallet> {
 *   return {
 *     authorize: async ({ principal, params: { walletId } }) => {
 *       const { ownerId } = await wallets.getById(walletId);
 *       if (ownerId !== principal.name) throw new EntityNotFoundError('Wallet', walletId.value);
 *     },
 *   };
 * }
 * ```
 */
export interface ActionPolicy<Params = unknown> {
  /**
   * Returns if the principal may execute the action with these params; otherwise throws what the caller is to get.
   *
   * @throws AccessDeniedError `access-denied` when the caller may know what was refused
   * @throws EntityNotFoundError `entity-not-found` when the caller must not learn whether it exists
   */
  authorize(request: {
    readonly principal: Principal;
    /** The same values that `perform` gets, in an object of its own. */
    readonly params: Params;
    /** The event for which a handler executes the action; `undefined` when somebody else does. */
    readonly handledEvent: HandledEvent | undefined;
  }): Promise<void> | void;
}
