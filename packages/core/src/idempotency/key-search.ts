import { FrameworkException } from '../errors/framework-exception.js';
import type { KeyScope, StoredKey } from '../persistence/idempotency-keys.js';
import type { TransactionManager } from '../persistence/transaction-manager.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';
import { namedShards } from './named-shards.js';

/** What one database said. */
type Finding = { readonly stored: StoredKey | undefined } | { readonly failure: unknown };

/**
 * Looks for a key where it may be.
 *
 * A database that cannot be reached is passed over: the key's unique index decides on the shard of the effect, and a
 * shard that is down must not affect requests that do not need it.
 */
export class KeySearch {
  readonly #databases: DatabaseRegistry;
  readonly #waitMs: number;

  /** @param waitMs how long a database is waited for that the request may not need */
  constructor(databases: DatabaseRegistry, waitMs: number) {
    this.#databases = databases;
    this.#waitMs = waitMs;
  }

  /** Looks in every database side by side, before an action is performed. */
  async everywhere(scope: KeyScope): Promise<StoredKey | undefined> {
    return found(await this.#ask(this.#databases.eachDatabase(), scope, this.#waitMs));
  }

  /**
   * Looks where a refused request may have had its effect before: on the shards that its params name; in every
   * database when they name none.
   *
   * @throws what the databases threw when they were named and none of them answered: the refusal is not certain then
   */
  async afterRefusal(scope: KeyScope, params: unknown): Promise<StoredKey | undefined> {
    const named = namedShards(params);
    if (named.size === 0) return this.everywhere(scope);
    const databases = this.#databases
      .eachDatabase()
      .filter((managers) => managers.some(({ shard }) => named.has(shard)));
    // One database can be waited for; of several, one may be down that the effect does not need.
    const findings = await this.#ask(databases, scope, databases.length === 1 ? undefined : this.#waitMs);
    const [first] = findings;
    if (first !== undefined && findings.every((finding) => 'failure' in finding)) throw failureOf(first);
    return found(findings);
  }

  #ask(
    databases: readonly (readonly TransactionManager[])[],
    scope: KeyScope,
    waitMs: number | undefined,
  ): Promise<readonly Finding[]> {
    const managers = databases.flatMap(([manager]) => manager ?? []);
    return Promise.all(
      managers.map(({ keys }) => keys.find(scope, waitMs).then((stored) => ({ stored }), findingOf)),
    );
  }
}

function found(findings: readonly Finding[]): StoredKey | undefined {
  for (const finding of findings) if ('stored' in finding && finding.stored) return finding.stored;
  return undefined;
}

function failureOf(finding: Finding): unknown {
  return 'failure' in finding ? finding.failure : undefined;
}

/** Only what retrying can mend is passed over; a bug is not. */
function findingOf(failure: unknown): Finding {
  if (FrameworkException.find(failure)?.retryable !== true) throw failure;
  return { failure };
}
