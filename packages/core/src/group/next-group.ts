import { ModelMap } from '../model/model-map.js';
import type { KeyScope } from '../persistence/idempotency-keys.js';
import type { Change } from '../persistence/change-set.js';
import type { QueuedPlan } from './queued-plan.js';

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
 * Of several plans that change one model only those go together of which each continues the one before; the others wait,
 * because they may be valid only if the first one is not. So do plans under the same idempotency key. What waits is not
 * overtaken by a plan that changes one of its models: the outcomes are those of one plan after the other. What waits for one
 * that is held up is held up itself.
 *
 * @param ahead the plans that come before the queue and have no outcome yet
 */
export function nextGroup(
  queue: readonly QueuedPlan[],
  plansMax: number,
  ahead: readonly QueuedPlan[] = [],
): NextGroup {
  const group: QueuedPlan[] = [];
  const rest: QueuedPlan[] = [];
  const claims = new Claims(ahead);
  for (const [index, plan] of queue.entries()) {
    if (group.length === plansMax) return { group, rest: rest.concat(queue.slice(index)) };
    const isFit = claims.admit(plan);
    plan.isHeldUp = claims.holdUp(plan);
    (isFit ? group : rest).push(plan);
    if (isFit) claims.join(plan);
    else claims.reserve(plan);
  }
  return { group, rest };
}

/** The last plan so far that changes a model. */
interface Writer {
  readonly plan: QueuedPlan;
  /** What plans of the same group may follow; `undefined` where the plan is not in the group. */
  readonly change: Change | undefined;
}

/** Which models and idempotency keys plans are about to change, so that others wait for them. */
class Claims {
  readonly #writers = new ModelMap<Writer>();
  readonly #keys = new Set<string>();

  /** @param ahead plans for which all others wait */
  constructor(ahead: readonly QueuedPlan[]) {
    for (const plan of ahead) this.reserve(plan);
  }

  /** Whether a plan can be in one group with those that joined. */
  admit(plan: QueuedPlan): boolean {
    const { changes, key } = plan.changes;
    if (key !== undefined && this.#keys.has(keyText(key))) return false;
    const linked = new Set<QueuedPlan>();
    for (const { repository, model } of changes) {
      const writer = this.#writers.get(repository.model, model.id.value);
      if (writer === undefined) continue;
      if (!isFollowedBy(writer, plan)) return false;
      linked.add(writer.plan);
    }
    // What it was built on is written already, lost, or in this group with a model that both change.
    return plan.builtOn.every((base) => base.plan.state !== 'pending' || linked.has(base.plan));
  }

  /** Whether a plan waits for one that is held up. */
  holdUp({ changes: { changes } }: QueuedPlan): boolean {
    return changes.some(
      ({ repository, model }) => this.#writers.get(repository.model, model.id.value)?.plan.isHeldUp === true,
    );
  }

  /** Takes a plan into the group. */
  join(plan: QueuedPlan): void {
    this.#claim(plan, (change) => ({ plan, change }));
  }

  /** Makes all other plans wait that change what this plan changes. */
  reserve(plan: QueuedPlan): void {
    this.#claim(plan, () => ({ plan, change: undefined }));
  }

  #claim(plan: QueuedPlan, writer: (change: Change) => Writer): void {
    const { changes, key } = plan.changes;
    for (const change of changes)
      this.#writers.set(change.repository.model, change.model.id.value, writer(change));
    if (key !== undefined) this.#keys.add(keyText(key));
  }
}

/** Staged models of one change are equal, whoever has looked them up. */
function isFollowedBy({ change }: Writer, plan: QueuedPlan): boolean {
  return plan.builtOn.some((base) => base.change === change && plan.continues(base));
}

function keyText({ namespace, principal, key }: KeyScope): string {
  return JSON.stringify([namespace, principal, key]);
}
