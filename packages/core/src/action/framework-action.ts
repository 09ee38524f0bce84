import type * as z from 'zod';
import { durableName } from '../model/durable-name.js';
import type { ActionClass } from './action.js';

/** What an action declares of itself. */
export interface ActionOptions<Params, Result = never> {
  /** The durable `action_name` of the log. Default: the class name. */
  readonly name?: string;
  /**
   * The schema of the params: checks them before perform, and writes them to the log.
   *
   * It must work in both directions: codecs are fine, one-way transforms are not.
   */
  readonly params?: z.ZodType<Params>;
  /**
   * The schema of the result: writes it beside an idempotency key, and reads it when the request is repeated.
   *
   * Works in both directions, too. Not needed where no key is used, or the result is `undefined`.
   */
  readonly result?: z.ZodType<Result>;
}

const declared = new Map<ActionClass<never, unknown>, ActionOptions<never>>();

/**
 * Marks an action for discovery, and declares its durable name and the schemas of its params and result.
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

/** What a class declared of itself; nothing when it is not marked. */
export function declaredOptions(action: ActionClass<never, unknown>): ActionOptions<never> {
  return declared.get(action) ?? {};
}

/**
 * The durable name under which the log knows an action: the one that it declares, else its class name.
 *
 * @throws InvariantViolation `invariant-violation` when a bundler has renamed a class that declares none
 */
export function actionNameOf(action: ActionClass<never, unknown>): string {
  return durableName(action, declaredOptions(action).name, "the name in @FrameworkAction({ name: '…' })");
}

/** Every class that was marked and imported so far. */
export function discoveredActions(): readonly ActionClass<never, unknown>[] {
  return [...declared.keys()];
}
