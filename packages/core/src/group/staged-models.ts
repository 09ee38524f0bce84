import type { ModelClass } from '../model/model-class.js';
import { ModelMap } from '../model/model-map.js';
import type { QueuedPlan, StagedModel } from './queued-plan.js';

/** The models of all plans that are queued or being written, as the last plan of each leaves them. */
export class StagedModels {
  readonly #latest = new ModelMap<StagedModel>();

  /** The model as it will be when everything that is queued is written; `undefined` when nothing of it is. */
  get(model: ModelClass<unknown>, id: string): StagedModel | undefined {
    const latest = this.#latest.get(model, id);
    return latest?.plan.state === 'pending' ? latest : undefined;
  }

  /** Shows what a plan stages; not where another plan was faster, which this one does not continue. */
  show(plan: QueuedPlan): void {
    for (const change of plan.changes.changes) {
      const { model } = change.repository;
      const id = change.model.id.value;
      const latest = this.get(model, id);
      if (latest === undefined || plan.continues(latest)) this.#latest.set(model, id, { plan, change });
    }
  }

  /** Whether a plan changes a model that is staged by one that is held up. */
  areHeldUp({ changes: { changes } }: QueuedPlan): boolean {
    return changes.some(({ repository, model }) => {
      const staged = this.get(repository.model, model.id.value);
      return staged?.plan.isHeldUp === true;
    });
  }

  /** Forgets what a plan staged, once it has its outcome. */
  hide(plan: QueuedPlan): void {
    for (const { repository, model } of plan.changes.changes) {
      const id = model.id.value;
      if (this.#latest.get(repository.model, id)?.plan === plan) this.#latest.delete(repository.model, id);
    }
  }
}
