import type { Clock } from '../clock.js';
import { GroupCommit } from '../group/group-commit.js';
import { type GroupSettings, defaultGroupSettings, groupRanges } from '../group/group-settings.js';
import type { ChangeSet } from '../persistence/change-set.js';
import type { PersistOutcome } from '../persistence/transaction-manager.js';
import { AttemptReads } from '../read/attempt-reads.js';
import { CombinedReads } from '../read/combined-reads.js';

import type { DatabaseRegistry } from '../sharding/database-registry.js';
import { ModelTurns } from '../turn/model-turns.js';
import { type TurnSettings, defaultTurnSettings, turnRanges } from '../turn/turn-settings.js';
import { commit } from './commit.js';
import type { ExecutionConfiguration } from './execution-configuration.js';
import { type RangesOf, settingsOf } from './settings.js';

/** What the attempts of one executor have in common: combined reads, turns, and the groups in which they commit. */
export class AttemptCommits {
  readonly #databases: DatabaseRegistry;
  readonly #isGroupedByDefault: boolean;
  readonly #reads: CombinedReads;
  readonly #turns: ModelTurns | undefined;
  readonly #groups: GroupCommit;

  /** @throws ConfigurationException `invalid-configuration` when a setting is out of its range */
  constructor(
    databases: DatabaseRegistry,
    clock: Clock,
    {
      groupCommit = false,
      turns = true,
    }: {
      readonly groupCommit?: boolean | Partial<GroupSettings>;
      readonly turns?: boolean | Partial<TurnSettings>;
    },
  ) {
    this.#databases = databases;
    this.#reads = new CombinedReads(clock);
    this.#isGroupedByDefault = groupCommit !== false;
    const groupSettings = switched('groupCommit', defaultGroupSettings, groupRanges, groupCommit);
    this.#groups = new GroupCommit(databases, groupSettings, clock);
    const turnSettings = switched('turns', defaultTurnSettings, turnRanges, turns);
    if (turns !== false) this.#turns = new ModelTurns(turnSettings, clock);
  }

  /**
   * What a new attempt reads through; its turns are to be given back.
   *
   * @param mayBuild whether it may build on what is not committed yet, where the execution commits in groups
   */
  openReads(
    { groupCommit: isGrouped = this.#isGroupedByDefault, handledEvent }: ExecutionConfiguration,
    mayBuild: boolean,
  ): AttemptReads {
    return new AttemptReads(this.#reads, this.#turns, this.#groups, {
      mayBuild: isGrouped && mayBuild,
      isOfHandler: handledEvent !== undefined,
    });
  }

  /** Commits in a group where the execution may and the plan can be in one, else as {@link commit}. */
  async commit(
    changeSets: readonly ChangeSet[],
    { groupCommit: isGrouped = this.#isGroupedByDefault }: ExecutionConfiguration,
    reads: AttemptReads,
  ): Promise<PersistOutcome> {
    const [first] = changeSets;
    if (isGrouped && first !== undefined && this.#groups.takes(changeSets))
      return this.#groups.commit(first, reads.handOver(), () => reads.giveBackTurns());
    await reads.untilWritten();
    return commit(changeSets, this.#databases, { onLockedOut: () => reads.holdUpTurns() });
  }
}

/** An option that is a switch or settings: `true` and `false` mean the defaults. */
function switched<T extends object>(
  path: string,
  defaults: T,
  ranges: RangesOf<T>,
  option: boolean | Partial<T>,
): T {
  return settingsOf(path, defaults, ranges, typeof option === 'boolean' ? undefined : option);
}
