import { commitOne, outcomeOf } from '../action/commit.js';
import { FrameworkException } from '../errors/framework-exception.js';
import type { GroupOutcome, TransactionManager } from '../persistence/transaction-manager.js';
import { type QueuedPlan, lostBaseError } from './queued-plan.js';

/**
 * Writes plans together, and gives each its outcome; a group that is written as a whole is still to be told. Never rejects.
 *
 * A group that fails as a whole is written in halves, so that only the culprit fails; a group of one is an ordinary
 * commit. What was built on a plan that is lost is lost, too, and not sent.
 */
export async function writeGroup(plans: readonly QueuedPlan[], manager: TransactionManager): Promise<void> {
  const group = plans.filter((plan) => !failIfBaseLost(plan));
  const [only] = group;
  if (only === undefined) return;
  if (group.length === 1) return writeAlone(only, manager);
  let outcomes: readonly GroupOutcome[];
  try {
    outcomes = await manager.persistAll(group.map(({ changes }) => changes));
  } catch (error) {
    return writeInHalves(group, error, manager);
  }
  await settleAll(group, outcomes, manager);
}

async function writeInHalves(
  group: readonly QueuedPlan[],
  error: unknown,
  manager: TransactionManager,
): Promise<void> {
  if (isUnavailable(error)) {
    for (const plan of group) plan.fail(error);
    return;
  }
  const middle = Math.ceil(group.length / 2);
  await writeGroup(group.slice(0, middle), manager);
  await writeGroup(group.slice(middle), manager);
}

/** First what is known, so that nobody waits for the plans that are written alone. */
async function settleAll(
  group: readonly QueuedPlan[],
  outcomes: readonly GroupOutcome[],
  manager: TransactionManager,
): Promise<void> {
  const open: Promise<void>[] = [];
  group.forEach((plan, index) => {
    const outcome = outcomes[index];
    if (outcome === 'written' || outcome === 'key-taken') plan.decide(outcome);
    else if (outcome !== undefined && outcome !== 'alone') open.push(settleError(plan, outcome, manager));
  });
  if (outcomes.every((outcome) => outcome === 'written')) return;
  for (const plan of group) plan.tell();
  await Promise.all(open);
  for (const [index, plan] of group.entries()) {
    const outcome = outcomes[index];
    if ((outcome === 'alone' || outcome === undefined) && !failIfBaseLost(plan))
      await writeAlone(plan, manager);
  }
}

/** Asks the log where the outcome is not known. */
async function settleError(plan: QueuedPlan, error: unknown, manager: TransactionManager): Promise<void> {
  try {
    plan.decide(await outcomeOf(error, manager));
    plan.tell();
  } catch (failure) {
    plan.fail(failure);
  }
}

async function writeAlone(plan: QueuedPlan, manager: TransactionManager): Promise<void> {
  try {
    plan.decide(await commitOne(plan.changes, manager));
    plan.tell();
  } catch (error) {
    plan.fail(error);
  }
}

function failIfBaseLost(plan: QueuedPlan): boolean {
  const lost = plan.lostBase;
  if (lost !== undefined) plan.fail(lostBaseError(lost));
  return lost !== undefined;
}

/** Whether the shard cannot serve, so that it would not serve the halves either. */
function isUnavailable(error: unknown): boolean {
  return FrameworkException.find(error)?.code === 'shard-unavailable';
}
