import { FrameworkError } from '../errors/framework-error.js';
import { ShardUnavailableError } from '../errors/storage-errors.js';
import { ShardedId } from '../id/sharded-id.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { KeyScope, StoredKey } from '../storage/idempotency-keys.js';
import type { TransactionManager } from '../storage/transaction-manager.js';

/** What one database said. */
type Finding = { readonly stored: StoredKey | undefined } | { readonly failure: unknown };

/**
 * Looks for a key where it may be.
 *
 * A database that the request may not need is passed over when it does not answer soon, or fails: the key's unique index decides on the
 * shard of the effect, and a shard that is down must not affect requests that do not need it.
 */
export class KeySearch {
  readonly #databases: DatabaseRegistry;
  readonly #waitMs: number;

  /** @param waitMs how long a database is waited for that the request may not need */
  constructor(databases: DatabaseRegistry, waitMs: number) {
    this.#databases = databases;
    this.#waitMs = waitMs;
  }

  /** Looks in every database side by side; one that does not answer soon is passed over. */
  async everywhere(scope: KeyScope): Promise<StoredKey | undefined> {
    const managers = this.#databases.eachDatabase().flatMap(([manager]) => manager ?? []);
    return found(await Promise.all(managers.map((manager) => this.#ask(manager, scope))));
  }

  /** Looks on a shard that the request may not need; when it does not answer soon, it is passed over. */
  async onShardIfItAnswers(scope: KeyScope, shard: ShardIdentifier): Promise<StoredKey | undefined> {
    return found([await this.#ask(this.#databases.transactionManager(shard), scope)]);
  }

  /**
   * Looks where a refused request may have had its effect before: on the shards that its params name, and on those that
   * it has accessed, because an effect can only cause a refusal where it was read; in every database when its params name
   * none.
   *
   * @param turnedTo the shards from which perform has read, in any way
   * @throws ShardUnavailableError `shard-unavailable` as {@link KeySearch.onShards} does: the refusal is not certain then
   */
  async afterRefusal(
    scope: KeyScope,
    params: unknown,
    turnedTo: ReadonlySet<ShardIdentifier>,
  ): Promise<StoredKey | undefined> {
    const named = namedShards(params);
    const stored = await this.onShards(scope, new Set([...named, ...turnedTo]));
    return stored === undefined && named.size === 0 ? this.everywhere(scope) : stored;
  }

  /**
   * Looks on these shards, for as long as a statement may take.
   *
   * @returns what the first one finds; `undefined` when each of them has said that it holds no such key
   * @throws ShardUnavailableError `shard-unavailable` when one did not answer and no other one holds the key
   */
  async onShards(scope: KeyScope, shards: ReadonlySet<ShardIdentifier>): Promise<StoredKey | undefined> {
    const managers = this.#databases
      .eachDatabase()
      .flatMap((database) => database.find(({ shard }) => shards.has(shard)) ?? []);
    return firstFound(managers.map((manager) => certain(manager, scope)));
  }

  #ask({ keys }: TransactionManager, scope: KeyScope): Promise<Finding> {
    return keys.find(scope, this.#waitMs).then((stored) => ({ stored }), findingOf);
  }
}

/** Asks a database for as long as a statement may take. */
async function certain({ keys, shard }: TransactionManager, scope: KeyScope): Promise<StoredKey | undefined> {
  try {
    return await keys.find(scope);
  } catch (error) {
    const known = FrameworkError.find(error);
    if (known?.retryable !== true || known.code === 'shard-unavailable') throw error;
    const reason = 'it did not say whether it holds the idempotency key of a request that may be a repeat';
    throw new ShardUnavailableError(shard, reason, { cause: error });
  }
}

/** What the first answer has found; when none has, all must have come. */
async function firstFound(
  answers: readonly Promise<StoredKey | undefined>[],
): Promise<StoredKey | undefined> {
  const stored = await Promise.any(answers.map(orNothing)).catch(() => undefined);
  if (stored === undefined) await Promise.all(answers);
  return stored;
}

async function orNothing(answer: Promise<StoredKey | undefined>): Promise<StoredKey> {
  const stored = await answer;
  if (stored === undefined) throw new Error('It holds no such key');
  return stored;
}

function found(findings: readonly Finding[]): StoredKey | undefined {
  for (const finding of findings) if ('stored' in finding && finding.stored) return finding.stored;
  return undefined;
}

/** A database that cannot serve, or is damaged, is passed over; a bug is not. */
function findingOf(failure: unknown): Finding {
  const known = FrameworkError.find(failure);
  if (known?.retryable !== true && known?.code !== 'storage-failure') throw failure;
  return { failure };
}

/** Params may be deep, and even circular where no schema checks them. */
const depthMax = 8;

/** The shards that an action's params name by ids of their models: where its effect most likely is. */
export function namedShards(params: unknown): ReadonlySet<ShardIdentifier> {
  const shards = new Set<ShardIdentifier>();
  collect(params, shards, 0);
  return shards;
}

function collect(value: unknown, shards: Set<ShardIdentifier>, depth: number): void {
  if (typeof value !== 'object' || value === null || depth > depthMax) return;
  if (value instanceof ShardedId) shards.add(value.resolveShardIdentifier());
  else for (const field of Object.values(value)) collect(field, shards, depth + 1);
}
