import type { Clock } from '../clock.js';
import { PlanUnavailableException } from '../errors/action-exceptions.js';
import { currentExecution } from './execution.js';
import type { Plan } from './plan.js';
import type { Principal } from './principal.js';

declare const paramsOf: unique symbol;

/**
 * One business operation: reads models, decides, and stages new versions on its plan; writes nothing itself.
 *
 * One instance serves all executions at once, so it holds no state of any of them. When an attempt fails on a
 * stale record, `perform` runs again with fresh reads and a fresh plan.
 *
 * ```ts
 * class WalletDepositMoneyAction extends Action<Params, Wallet> {
 *   constructor(clock: Clock, private readonly wallets: WalletRepository) { super(clock); }
 *
 *   protected async perform(principal: Principal, { walletId, amount }: Params): Promise<Wallet> {
 *     const wallet = await this.wallets.getById(walletId);
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
   * The plan of the running execution.
   *
   * @throws PlanUnavailableException `plan-unavailable` outside of perform
   */
  protected plan(): Plan {
    const execution = currentExecution();
    if (execution === undefined) throw new PlanUnavailableException(this.constructor.name);
    return execution.plan;
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
