import type * as z from 'zod';

import type { Clock } from '../clock.js';
import { PlanUnavailableError } from '../errors/action-errors.js';
import { type ModelClass, durableName } from '../model/model-class.js';
import { currentAttempt } from './attempt-context.js';
import type { Plan } from './plan.js';

declare const paramsOf: unique symbol;

/**
 * One business operation: reads models, decides, and stages new versions on its plan; writes nothing itself.
 *
 * One instance serves all executions at once, so it holds no state of any of them. When an attempt fails on a
 * stale record, `perform` runs again with fresh reads and a fresh plan.
 *
 * ```ts
 * const params = z.object({ walletId: shardedIdCodec(Wallet), amount: decimalCodec(Big) });
 * type Params = z.infer<typeof params>;
 *
 * class WalletDepositMoneyAction extends Action<Params, Wallet> {
 *   static readonly params = params;
 *   static readonly result = Wallet;
 *   readonly #wallets: Repository<Wallet>;
 *
 *   constructor(clock: Clock, wallets: Repository<Wallet>) {
 *     super(clock);
 *     this.#wallets = wallets;
 *   }
 *
 *   protected async perform(principal: Principal, { walletId, amount }: Params): Promise<Wallet> {
 *     const wallet = await this.#wallets.getById(walletId);
 *     return this.plan().update(wallet.deposit(amount));
 *   }
 * }
 * ```
 */
export abstract class Action<Params, Result> {
  /** Exists in the type only: a schema that leaves out one of the params is not accepted for them. */
  declare readonly [paramsOf]: (params: Params) => void;

  constructor(protected readonly clock: Clock) {}

  /**
   * What the action does. Await everything: the plan is sealed when it returns.
   *
   * @param params a copy of what was handed over, its own at each attempt; instances of classes are not copied
   */
  protected abstract perform(principal: Principal, params: Params): Promise<Result>;

  /**
   * The plan of the running attempt.
   *
   * @throws PlanUnavailableError `plan-unavailable` outside of perform
   */
  protected plan(): Plan {
    const attempt = currentAttempt();
    if (attempt === undefined) throw new PlanUnavailableError(this.constructor.name);
    return attempt.plan;
  }
}

/** The class of an action, as a value: what is executed, with the types of its params and result. */
export type ActionClass<Params, Result> = abstract new (...args: never[]) => Action<Params, Result>;

/** Performs an action; for the executor, which alone opens the plan that this needs. */
export function perform<Params, Result>(
  action: Action<Params, Result>,
  principal: Principal,
  params: Params,
): Promise<Result> {
  return action['perform'](principal, params);
}

/** What an action declares of itself by static fields of these names: they need no decorator, and run everywhere. */
export interface ActionDeclaration<Params, Result> {
  /** The durable `action_name` of the log. Default: the class name. */
  readonly actionName?: string;
  /**
   * The schema of the params: checks them before perform, and writes them to the log.
   *
   * It must work in both directions: codecs are fine, one-way transforms are not.
   */
  readonly params?: z.ZodType<Params>;
  /**
   * How the result is written beside an idempotency key, and read when the request is repeated: the class of a model, which
   * its repository writes, or a schema that works in both directions, too.
   *
   * Not needed where no key is used, or the result is `undefined`.
   */
  readonly result?: z.ZodType<Result> | ModelClass<Result>;
}

/** What the decorator of an action declares: the same, with the name as `name`. */
export interface ActionOptions<Params, Result = never> extends Pick<
  ActionDeclaration<Params, Result>,
  'params' | 'result'
> {
  /** The durable `action_name` of the log. Default: the static `actionName`, else the class name. */
  readonly name?: string;
}

const declared = new Map<ActionClass<never, unknown>, ActionOptions<never>>();

/**
 * Marks an action for discovery by {@link ActionRegistry.discover}, and can declare what static fields of the class do not.
 *
 * Works as a standard decorator, as a legacy one, and as a call: `FrameworkAction()(WalletCloseAction)`.
 */
export function FrameworkAction<Params = never, Result = unknown>(
  options: ActionOptions<Params, Result> = {},
): (action: ActionClass<Params, Result>) => void {
  return (action) => {
    declared.set(action, options as ActionOptions<never>);
  };
}

/** What a class declares of itself: by its decorator, else by static fields. */
export function declaredOptions(action: ActionClass<never, unknown>): ActionOptions<never> {
  const { actionName, params, result } = action as ActionDeclaration<never, never>;
  return {
    ...(actionName !== undefined && { name: actionName }),
    ...(params !== undefined && { params }),
    ...(result !== undefined && { result }),
    ...declared.get(action),
  };
}

/**
 * The durable name under which the log knows an action: the one that it declares, else its class name.
 *
 * @throws InvariantViolationError `invariant-violation` when a bundler has renamed a class that declares none
 */
export function actionNameOf(action: ActionClass<never, unknown>): string {
  return durableName(action, declaredOptions(action).name, 'static readonly actionName');
}

/** Every class that was marked and imported so far. */
export function discoveredActions(): readonly ActionClass<never, unknown>[] {
  return [...declared.keys()];
}

/** Who asks for an action: written with every event of it. */
export interface Principal {
  /** Names the user or the system, such as the subject of a token. At most 255 characters. */
  readonly name: string;
}
