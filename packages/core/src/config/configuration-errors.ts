import { FrameworkError } from '../errors/framework-error.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';

/** One fault of a configuration: its path in kebab-case, and what is wrong there. */
export interface ConfigurationIssue {
  /** For example `framework.sharding.groups[0].members[1].configs.primary-config.jdbc-url`. */
  readonly path: string;
  readonly message: string;
}

/**
 * The configuration cannot be used. The message names every fault by its path, and never shows a value that could be
 * secret.
 */
export class ConfigurationError extends FrameworkError {
  /** All faults that were found, not only the first. */
  readonly faults: readonly ConfigurationIssue[];

  constructor(faults: readonly ConfigurationIssue[], options?: { readonly cause?: unknown }) {
    const lines = faults.map(({ path, message }) => `  ${path}: ${message}`);
    super('invalid-configuration', `The configuration cannot be used:\n${lines.join('\n')}`, options);
    this.faults = faults;
  }
}

/** The shard of an id is not in the configuration. The framework never answers from another shard instead. */
export class UnknownShardError extends FrameworkError {
  /** The shard that is not configured. */
  readonly shard: ShardIdentifier;

  constructor(shard: ShardIdentifier) {
    super(
      'unknown-shard',
      `${shard} is not configured in this process: add it to framework.sharding.groups, or in a test to the option shards: […]`,
    );
    this.shard = shard;
  }
}

/** No configured shard can be used until somebody corrects the configuration or the databases. */
export class NoUsableShardError extends FrameworkError {
  /** All configured shards. */
  readonly shards: readonly ShardIdentifier[];

  /** @param faults for each shard, its `path` in the configuration and what is wrong, with host and database */
  constructor(
    faults: readonly { readonly shard: ShardIdentifier; readonly path: string; readonly message: string }[],
    options: { readonly cause: unknown },
  ) {
    const lines = faults.map(({ path, message }) => `  ${path}: ${message}`);
    super('no-usable-shard', `No shard can be used:\n${lines.join('\n')}`, options);
    this.shards = faults.map(({ shard }) => shard);
  }
}

/** A plan spans several shards, which the caller did not allow; nothing was written. */
export class CrossShardException extends FrameworkError {
  /** The shards of the plan, in order. */
  readonly shards: readonly ShardIdentifier[];

  constructor(action: string, shards: readonly ShardIdentifier[]) {
    super(
      'cross-shard',
      `${action} stages changes on ${shards.join(' and ')}, which cannot commit together. Nothing was written. ` +
        'Keep the plan on one shard, use a saga, or pass allowCrossShard: true and handle a partial commit.',
    );
    this.shards = shards;
  }
}

/** A cross-shard action committed on some shards and failed on a later one. */
export class PartialCommitError extends FrameworkError {
  /** The shards that hold the action's changes. */
  readonly committed: readonly ShardIdentifier[];
  /** The shards that do not hold them: the commit failed on the first one, and the others were not tried. */
  readonly failed: readonly ShardIdentifier[];
  /** The shard whose outcome could not be found out: it may hold them. */
  readonly unknown: ShardIdentifier | undefined;
  /** The action's id, which the log of each shard that committed contains. */
  readonly actionId: string;

  constructor(
    actionId: string,
    shards: {
      readonly committed: readonly ShardIdentifier[];
      readonly failed: readonly ShardIdentifier[];
      readonly unknown: ShardIdentifier | undefined;
    },
    options: { readonly cause: unknown },
  ) {
    super(
      'partial-commit',
      `Action ${actionId} is committed on ${shards.committed.join(', ')}, ${missingFrom(shards)}: ` +
        'repair this by hand, using the action_id in the logs',
      options,
    );
    this.actionId = actionId;
    this.committed = shards.committed;
    this.failed = shards.failed;
    this.unknown = shards.unknown;
  }
}

function missingFrom(shards: {
  readonly failed: readonly ShardIdentifier[];
  readonly unknown: ShardIdentifier | undefined;
}): string {
  const failed = shards.failed.length > 0 ? [`not on ${shards.failed.join(', ')}`] : [];
  const unknown = shards.unknown === undefined ? [] : [`perhaps on ${shards.unknown.toString()}`];
  return [...failed, ...unknown].join(' and ');
}
