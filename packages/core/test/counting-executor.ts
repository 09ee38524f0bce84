import * as z from 'zod';
import {
  Action,
  type ExecutionConfiguration,
  type ExecutorOptions,
  FrameworkAction,
  type Principal,
  ShardUnavailableError,
  systemClock,
} from '../src/index.js';
import { type TestExecutor, executorOf, mexico, principal } from './test-executor.js';

export const key: ExecutionConfiguration = { idempotencyKey: 'key-1' };
/** Like {@link key}, without a search for other requests with it before the action is performed. */
export const unsearched: ExecutionConfiguration = { ...key, checkKeyEverywhere: false };
export const unavailable: ShardUnavailableError = new ShardUnavailableError(mexico, 'it is down');

/** Counts how often it was performed, and returns that with the amount. */
export class CountAction extends Action<
  { readonly amount: bigint },
  { readonly count: number; readonly amount: bigint }
> {
  count = 0;

  protected async perform(
    _principal: Principal,
    { amount }: { readonly amount: bigint },
  ): Promise<{ readonly count: number; readonly amount: bigint }> {
    return { count: ++this.count, amount };
  }
}

const wholeNumber = z.codec(z.string(), z.bigint(), { decode: (text) => BigInt(text), encode: String });
FrameworkAction({
  params: z.object({ amount: wholeNumber }),
  result: z.object({ count: z.int(), amount: wholeNumber }),
})(CountAction);

/** An executor with a {@link CountAction}, which `count` executes with a key. */
export function countingExecutor(options: Partial<ExecutorOptions> = {}): TestExecutor & {
  readonly action: CountAction;
  readonly count: (amount: bigint, configuration?: ExecutionConfiguration) => Promise<unknown>;
} {
  const action = new CountAction(systemClock);
  const running = executorOf(async () => undefined, { ...options, actions: [action] });
  const count = (amount: bigint, configuration = key): Promise<unknown> =>
    running.executor.execute(principal, CountAction, { amount }, configuration);
  return { ...running, action, count };
}
