import { ModelMap } from '../model/model-map.js';
import type { KeyScope } from '../persistence/idempotency-keys.js';
import type { QueuedPlan, StagedModel } from './queued-plan.js';

/** A queue, divided. */
export interface NextGroup {
  /** What can be written together, in order. */
  readonly group: readonly QueuedPlan[];
  /** What has to wait, in order. */
  readonly rest: QueuedPlan[];
}

/**
 * Chooses from the front of a queue what can be written in one transaction.
 *
 * Of several plans that change one model only those go together that were built on each other; the others wait, because
 * they may be valid only if the first one is not. So do plans under the same idempotency key. What waits is not overtaken
 * by a plan that changes one of its models: the outcomes are those of one plan after the other.
 */
export function nextGroup(queue: readonly QueuedPlan[], plansMax: number): NextGroup {
  const group: QueuedPlan[] = [];
  const rest: QueuedPlan[] = [];
  if (queue.length === 1) return { group: queue, rest };
  const writers = new ModelMap<StagedModel | 'waiting'>();
  const keys = new Set<string>();
  for (const [index, plan] of queue.entries()) {
    if (group.length === plansMax) {
      rest.push(...queue.slice(index));
      break;
    }
    const isFit = fits(plan, writers, keys);
    (isFit ? group : rest).push(plan);
    for (const change of plan.changes.changes)
      writers.set(change.repository.model, change.model.id.value, isFit ? { plan, change } : 'waiting');
    if (plan.changes.key !== undefined) keys.add(keyText(plan.changes.key));
  }
  return { group, rest };
}

function fits(
  plan: QueuedPlan,
  writers: ModelMap<StagedModel | 'waiting'>,
  keys: ReadonlySet<string>,
): boolean {
  const { changes, key } = plan.changes;
  if (key !== undefined && keys.has(keyText(key))) return false;
  let linked: QueuedPlan[] | undefined;
  for (const { repository, model } of changes) {
    const writer = writers.get(repository.model, model.id.value);
    if (writer === undefined) continue;
    if (writer === 'waiting') return false;
    if (!plan.builtOn.some((base) => base.plan === writer.plan && base.change === writer.change))
      return false;
    (linked ??= []).push(writer.plan);
  }
  // What it was built on is written already, lost, or in this group with a model that both change.
  return plan.builtOn.every((base) => base.plan.state !== 'pending' || linked?.includes(base.plan) === true);
}

function keyText({ namespace, principal, key }: KeyScope): string {
  return JSON.stringify([namespace, principal, key]);
}
