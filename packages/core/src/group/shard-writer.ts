import { AsyncLocalStorage } from 'node:async_hooks';
import { ShardUnavailableException } from '../errors/storage-exceptions.js';
import type { TransactionManager } from '../persistence/transaction-manager.js';
import type { GroupSettings } from './group-settings.js';
import { nextGroup } from './next-group.js';
import { type QueuedPlan, lostBaseError } from './queued-plan.js';
import type { StagedModels } from './staged-models.js';
import { writeGroup } from './write-group.js';

/**
 * Writes the plans of one shard, one group at a time.
 *
 * A plan that finds it idle goes at once; those that come while it is busy form the next group.
 */
export class ShardWriter {
  readonly #manager: TransactionManager;
  readonly #settings: GroupSettings;
  readonly #staged: StagedModels;
  /** Groups belong to no execution: they must not run in the context of the one that happened to wake the writer. */
  readonly #inOwnContext = AsyncLocalStorage.snapshot();
  #queue: QueuedPlan[] = [];
  #isBusy = false;

  constructor(manager: TransactionManager, settings: GroupSettings, staged: StagedModels) {
    this.#manager = manager;
    this.#settings = settings;
    this.#staged = staged;
  }

  /** @throws ShardUnavailableException `shard-unavailable` when too many plans wait already */
  add(plan: QueuedPlan): void {
    const { queueMax } = this.#settings;
    if (this.#queue.length >= queueMax) {
      const { shard } = this.#manager;
      throw new ShardUnavailableException(shard, `${queueMax} plans wait to be written already`);
    }
    this.#queue.push(plan);
    this.#staged.show(plan);
    if (this.#isBusy) return;
    this.#isBusy = true;
    this.#inOwnContext(() => void this.#writeAll());
  }

  async #writeAll(): Promise<void> {
    // Plans that are ready at this very moment, such as those of one combined read, go together.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const { group, rest } = nextGroup(this.#queue, this.#settings.plansMax);
      this.#queue = rest;
      await writeGroup(group, this.#manager);
      for (const plan of group) this.#staged.hide(plan);
      if (group.some(({ state }) => state === 'lost')) this.#dropLost();
      // The next group is on its way before the executions of this one go on, which takes the process a while.
      if (this.#queue.length > 0) setImmediate(tellAll, group);
      else tellAll(group);
    }
    this.#isBusy = false;
  }

  /** Fails what was built on a plan that is lost now, in order: what was built on that is lost, too. */
  #dropLost(): void {
    this.#queue = this.#queue.filter((plan) => {
      const lost = plan.lostBase;
      if (lost === undefined) return true;
      plan.fail(lostBaseError(lost));
      this.#staged.hide(plan);
      return false;
    });
  }
}

function tellAll(group: readonly QueuedPlan[]): void {
  for (const plan of group) plan.tell();
}
