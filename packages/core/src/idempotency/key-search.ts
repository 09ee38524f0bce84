import { FrameworkError } from '../errors/framework-error.js';
import { ShardedId } from '../id/id.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { DatabaseRegistry } from '../storage/database-registry.js';
import type { KeyScope, StoredKey } from '../storage/idempotency-keys.js';
import { ShardUnavailableError } from '../storage/storage-errors.js';
import type { TransactionManager } from '../storage/transaction-manager.js';
import type { KeyedRequest } from './keyed-request.js';

type SearchedRequest = Pick<KeyedRequest<unknown>, 'scope' | 'isSearchedEverywhere' | 'isSame'>;

/** The answer of one database. */
type Finding = { readonly stored: StoredKey | undefined } | { readonly failure: unknown };

/**
 * Searches for a key in the databases that may hold it.
 *
 * A database that the request may not need is skipped if it fails or does not answer soon. The key's unique index on
 * the shard of the effect decides in the end, and a shard that is down must not affect requests that do not need it.
 */
export class KeySearch {
  readonly #databases: DatabaseRegistry;
  readonly #waitMs: number;

  /** @param waitMs how long to wait for a database that the request may not need */
  constructor(databases: DatabaseRegistry, waitMs: number) {
    this.#databases = databases;
    this.#waitMs = waitMs;
  }

  /**
   * Searches all databases in parallel, and skips those that do not answer soon. Two requests that used the key at the same time may
   * both be recorded: the request's own record counts.
   */
  async everywhere({ scope, isSame }: SearchedRequest): Promise<StoredKey | undefined> {
    const managers = this.#databases.eachDatabase().flatMap(([manager]) => manager ?? []);
    const stored = found(await Promise.all(managers.map((manager) => this.#ask(manager, scope))));
    return stored.find(isSame) ?? stored[0];
  }

  /**
   * Searches, before an effect is committed, for an earlier execution of the request that had nothing to do. It is recorded on
   * the shard that it accessed first, or, if it accessed none, on the shard for such executions. The unique index of the
   * effect's shard does not show it.
   *
   * @param shards the shard of the effect, the shard that was accessed first, and the shard on which an execution without any
   * access is recorded
   */
  async beforeEffect(
    { scope, isSearchedEverywhere }: SearchedRequest,
    {
      effect,
      first,
      unread,
    }: Readonly<Record<'effect' | 'unread', ShardIdentifier>> & {
      readonly first: ShardIdentifier | undefined;
    },
  ): Promise<StoredKey | undefined> {
    if (first !== undefined && first !== effect) {
      const stored = await this.#onShards(scope, new Set([first]));
      if (stored !== undefined) return stored;
    }
    if (isSearchedEverywhere || unread === first || unread === effect) return undefined;
    // The request may not need this shard.
    const [stored] = found([await this.#ask(this.#databases.transactionManager(unread), scope)]);
    return stored;
  }

  /**
   * Searches, before an execution without an effect is recorded, for an earlier execution of the request that had one. That may
   * be why there is nothing to do, and the unique index of the shard where the execution is recorded does not show it.
   */
  async beforeNoEffect(
    request: SearchedRequest,
    accessed: ReadonlySet<ShardIdentifier>,
    recordShard: ShardIdentifier,
  ): Promise<StoredKey | undefined> {
    const others = new Set([...accessed].filter((shard) => shard !== recordShard));
    const stored = await this.#onShards(request.scope, others);
    return stored ?? (request.isSearchedEverywhere ? undefined : this.everywhere(request));
  }

  /**
   * Searches for the earlier effect of a request that has now been refused. It asks the shards that the params name
   * and those that `perform` has read from, because an effect can only cause a refusal where it was read. If the
   * params name no shard, it asks every database.
   *
   * @param turnedTo the shards that `perform` has read from in any way
   * @throws ShardUnavailableError `shard-unavailable` when one of these shards does not answer, because the refusal is not
   * certain then
   */
  async afterRefusal(
    request: SearchedRequest,
    params: unknown,
    turnedTo: ReadonlySet<ShardIdentifier>,
  ): Promise<StoredKey | undefined> {
    const named = namedShards(params);
    const stored = await this.#onShards(request.scope, new Set([...named, ...turnedTo]));
    return stored === undefined && named.size === 0 ? this.everywhere(request) : stored;
  }

  /**
   * Searches these shards, and waits as long as a statement may take.
   *
   * @returns the first key found; `undefined` when every shard has answered that it holds no such key
   * @throws ShardUnavailableError `shard-unavailable` when a shard did not answer and no other one holds the key
   */
  async #onShards(scope: KeyScope, shards: ReadonlySet<ShardIdentifier>): Promise<StoredKey | undefined> {
    const managers = this.#databases
      .eachDatabase()
      .flatMap((database) => database.find(({ shard }) => shards.has(shard)) ?? []);
    return firstFound(managers.map((manager) => certain(manager, scope)));
  }

  #ask({ keys }: TransactionManager, scope: KeyScope): Promise<Finding> {
    return keys.find(scope, this.#waitMs).then((stored) => ({ stored }), findingOf);
  }
}

/** Asks a database, and waits as long as a statement may take. */
async function certain({ keys, shard }: TransactionManager, scope: KeyScope): Promise<StoredKey | undefined> {
  try {
    return await keys.find(scope);
  } catch (error) {
    const known = FrameworkError.find(error);
    if (known?.retryable !== true || known.code === 'shard-unavailable') throw error;
    const reason =
      'its database did not say whether it holds the idempotency key of a request that may be a repeat';
    throw new ShardUnavailableError(shard, reason, { cause: error });
  }
}

/** The first key found. Without one, all answers are awaited, so that their errors count. */
async function firstFound(
  answers: readonly Promise<StoredKey | undefined>[],
): Promise<StoredKey | undefined> {
  const stored = await Promise.any(answers.map(orRejection)).catch(() => undefined);
  if (stored === undefined) await Promise.all(answers);
  return stored;
}

async function orRejection(answer: Promise<StoredKey | undefined>): Promise<StoredKey> {
  const stored = await answer;
  if (stored === undefined) throw new Error('The database holds no such key');
  return stored;
}

function found(findings: readonly Finding[]): readonly StoredKey[] {
  return findings.flatMap((finding) => ('stored' in finding && finding.stored ? [finding.stored] : []));
}

/** Skips a database that is unavailable or damaged, but not a bug. */
function findingOf(failure: unknown): Finding {
  const known = FrameworkError.find(failure);
  if (known?.retryable !== true && known?.code !== 'storage-failure') throw failure;
  return { failure };
}

/** Params may be deep, and even circular if no schema checks them. */
const depthMax = 8;

/** The shards of all sharded ids in an action's params: the most likely places of its effect. */
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
