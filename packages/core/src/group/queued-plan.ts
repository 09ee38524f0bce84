import { StaleRecordException } from '../errors/storage-exceptions.js';
import { modelNameOf } from '../model/model-class.js';
import type { Change, ChangeSet } from '../persistence/change-set.js';
import type { PersistOutcome } from '../persistence/transaction-manager.js';

/** A model as a plan leaves it that is not committed yet. */
export interface StagedModel {
  readonly plan: QueuedPlan;
  readonly change: Change;
}

/** A plan on its way into the database: what it writes, what it was built on, and how it ended. */
export class QueuedPlan {
  readonly changes: ChangeSet;
  /** The staged models that its action read: when one of them is not written, neither is this plan. */
  readonly builtOn: readonly StagedModel[];
  /** Settles with the outcome; awaited by the execution. */
  readonly outcome: Promise<PersistOutcome>;
  #resolve!: (outcome: PersistOutcome) => void;
  #reject!: (error: unknown) => void;
  #decided: PersistOutcome | undefined;
  #state: 'pending' | 'written' | 'lost' = 'pending';

  constructor(changes: ChangeSet, builtOn: readonly StagedModel[]) {
    this.changes = changes;
    this.builtOn = builtOn;
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** Whether it has its outcome; `lost` when nothing of it was written, or nobody knows. */
  get state(): 'pending' | 'written' | 'lost' {
    return this.#state;
  }

  /** The staged model that was lost and on which this plan was built, if there is one. */
  get lostBase(): StagedModel | undefined {
    return this.builtOn.length === 0 ? undefined : this.builtOn.find(({ plan }) => plan.state === 'lost');
  }

  /** Resolves when it has its outcome, whatever that is. */
  get ended(): Promise<unknown> {
    return this.outcome.catch(() => undefined);
  }

  /** Gives it its outcome; its execution goes on when it is told. */
  decide(outcome: PersistOutcome): void {
    this.#state = outcome === 'written' ? 'written' : 'lost';
    this.#decided = outcome;
  }

  /** Lets its execution go on, when it has its outcome. */
  tell(): void {
    if (this.#decided !== undefined) this.#resolve(this.#decided);
  }

  fail(error: unknown): void {
    this.#state = 'lost';
    this.#reject(error);
  }
}

/** The error of a plan that was built on a model that was never committed: fresh reads can help. */
export function lostBaseError({ change }: StagedModel): StaleRecordException {
  const { model, repository } = change;
  return new StaleRecordException(modelNameOf(repository.model), model.id.value, model.version);
}
