import type * as z from 'zod';
import type { ActionClass } from './action.js';

/** What an action declares of itself. */
export interface ActionOptions<Params> {
  /** The durable `action_name` of the log. Default: the class name. */
  readonly name?: string;
  /**
   * The schema of the params: checks them before perform, and writes them to the log.
   *
   * It must work in both directions: codecs are fine, one-way transforms are not.
   */
  readonly params?: z.ZodType<Params>;
}

const declared = new Map<ActionClass<never, unknown>, ActionOptions<never>>();

/**
 * Marks an action for discovery, and declares its durable name and the schema of its params.
 *
 * Works as a standard decorator, as a legacy one, and as a call: `FrameworkAction()(WalletCloseAction)`.
 */
export function FrameworkAction<Params = never>(
  options: ActionOptions<Params> = {},
): (action: ActionClass<Params, unknown>) => void {
  return (action) => {
    declared.set(action, options as ActionOptions<never>);
  };
}

/** What a class declared of itself; nothing when it is not marked. */
export function declaredOptions(action: ActionClass<never, unknown>): ActionOptions<never> {
  return declared.get(action) ?? {};
}

/** Every class that was marked and imported so far. */
export function discoveredActions(): readonly ActionClass<never, unknown>[] {
  return [...declared.keys()];
}
