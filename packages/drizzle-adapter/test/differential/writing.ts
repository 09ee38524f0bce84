import type { KeyRecord } from '@framework/core/adapter';
import type { Account } from '@framework/conformance';
import { handlerKeysOf, inOrder, nextOf, plain } from './answers.js';
import { type Write, changeSet, eventsOf, newId, writeTogether } from './changes.js';
import { type Known, handlerNames } from './known.js';
import type { Both } from './store-pair.js';

const keyNames = ['a', 'b', 'c'];

/** Writes, histories and idempotency keys. */
export class Writing {
  readonly #known: Known;
  /** The versions of the accounts in both stores. */
  readonly #versions = new Map<string, number>();
  readonly #actionIds: string[] = [];
  /** The timelines of both stores before each restore and after the last one. */
  readonly #timelines: Both<number>[];

  constructor(known: Known) {
    this.#known = known;
    this.#timelines = [known.stores.timeline];
  }

  /** Writes one change set. */
  async persist(): Promise<void> {
    const again =
      this.#known.chance(0.2) && this.#actionIds.length > 0 ? this.#known.of(this.#actionIds) : undefined;
    const write = this.#write(again);
    await this.#known.stores.ask((store) => store.manager.persist(changeSet(write, store)));
    await this.#learn([write]);
  }

  /** Writes a group of change sets, some of which continue others. */
  async persistAll(): Promise<void> {
    const keys = new Set<string>();
    const writes = Array.from({ length: 1 + this.#known.below(6) }, () => {
      const write = this.#write();
      const isNew = write.key !== undefined && !keys.has(write.key.key);
      if (write.key !== undefined) keys.add(write.key.key);
      for (const { id, version } of write.models) this.#versions.set(id.value, version);
      return isNew ? write : { ...write, key: undefined };
    });
    await this.#known.stores.ask((store) => writeTogether(writes, store));
    await this.#learn(writes);
  }

  async backUp(): Promise<void> {
    await this.#known.stores.backUp();
  }

  async restore(): Promise<void> {
    await this.#known.stores.restore();
    await this.#learn([]);
    await this.#forgetLost();
    this.#timelines.push(this.#known.stores.timeline);
  }

  /** Reads the history of one account, page by page. */
  async history(): Promise<void> {
    const [account, limit] = [this.#known.of(this.#known.accounts), 1 + this.#known.below(3)];
    await this.#history(account, limit);
  }

  /** Compares all accounts with their histories. */
  async compare(): Promise<void> {
    const { stores, accounts } = this.#known;
    await stores.ask(
      (store) => store.accounts.findAll(),
      (found) => inOrder(found.map(({ id, version, quota }) => [id.value, version, `${quota}`])),
    );
    for (const account of accounts) await this.#history(account, 1_000);
  }

  async findKey(): Promise<void> {
    const scope = this.#scope();
    await this.#known.stores.ask(({ manager }) => manager.keys.find(scope));
  }

  async deleteExpired(): Promise<void> {
    const countMax = 1 + this.#known.below(3);
    await this.#known.stores.ask(({ manager }) => manager.keys.deleteExpired(countMax));
  }

  async findHandlerKeys(): Promise<void> {
    const [olderThanMs, limit] = [this.#known.below(20_000), 1 + this.#known.below(3)];
    // The keys of one group are equally old.
    await this.#known.stores.ask(
      (store) => handlerKeysOf(store, olderThanMs, limit),
      (keys) =>
        inOrder(keys.map(({ namespace, principal, key, source }) => [namespace, principal, key, source])),
    );
  }

  async deleteKeys(): Promise<void> {
    const scopes = this.#known.some([this.#scope(), this.#scope()]);
    await this.#known.stores.ask(({ manager }) => manager.keys.delete(scopes));
  }

  async #history(account: Account, limit: number): Promise<void> {
    let after: Both<string> | undefined;
    do {
      const from = after;
      const page = await this.#known.stores.ask(
        ({ name, manager }) =>
          manager.log.findByModel({ name: 'Account', id: account.id.value }, { limit, after: from?.[name] }),
        ({ items, next }) => ({ items: items.map(plain), isLast: next === undefined }),
      );
      after = nextOf(page);
    } while (after !== undefined);
  }

  /** @param again the action of an earlier attempt whose commit is unknown */
  #write(again?: string): Write {
    const models = this.#known
      .some(this.#known.accounts)
      .slice(0, 3)
      .map((account, index) => {
        const stored = this.#versions.get(account.id.value) ?? 0;
        // At most one version is wrong: if there were several, each store would decide for itself which one to report.
        const isRight = index > 0 || again !== undefined || this.#known.chance(0.7);
        const offset = isRight ? 0 : this.#known.of([-1, 1]);
        return account.variant({
          version: Math.max(1, stored + 1 + offset),
          quota: BigInt(this.#known.below(100)),
        });
      });
    const eventCounts = models.map(() => this.#known.below(3));
    const timeline = this.#known.chance(0.9) ? this.#timelines.at(-1)! : this.#known.of(this.#timelines);
    if (again !== undefined)
      return { actionId: again, models, eventCounts, key: undefined, timeline, isRepeat: true };
    const actionId = newId();
    this.#actionIds.push(actionId);
    const key = this.#known.chance(0.4) ? this.#key() : undefined;
    return { actionId, models, eventCounts, key, timeline, isRepeat: false };
  }

  #key(): KeyRecord {
    const scope = this.#scope();
    const event = this.#known.event();
    return {
      ...scope,
      fingerprint: `print ${this.#known.below(2)}`,
      result: this.#known.of([undefined, '{"a": null}', '[1]']),
      lifetimeMs: 1 + this.#known.below(60_000),
      ...(scope.namespace === 'handlers' && {
        source: `0/0 ${event?.memory.id ?? newId()} ${this.#known.of(handlerNames)}`,
      }),
    };
  }

  #scope(): Pick<KeyRecord, 'namespace' | 'principal' | 'key'> {
    return {
      namespace: this.#known.of(['clients', 'handlers']),
      principal: 'ada',
      key: this.#known.of(keyNames),
    };
  }

  /** Forgets the events that the restore has lost: a process that gets a lease afterwards cannot have read them. */
  async #forgetLost(): Promise<void> {
    const { stores, events } = this.#known;
    for (const event of events.splice(0)) {
      const found = await stores.ask(
        ({ log }) => log.find(event.memory.id),
        (same) => same?.id,
      );
      if (found?.memory !== undefined) events.push(event);
    }
  }

  /** Finds out what the stores now contain of the writes. */
  async #learn(writes: readonly Write[]): Promise<void> {
    const stored = await this.#known.stores.ask(
      ({ accounts }) => accounts.findAll(),
      (accounts) => inOrder(accounts.map(({ id, version }) => [id.value, version])),
    );
    this.#versions.clear();
    for (const { id, version } of stored?.memory ?? []) this.#versions.set(id.value, version);
    for (const write of writes) {
      for (const { id } of eventsOf(write)) {
        const found = await this.#known.stores.ask(
          ({ log }) => log.find(id),
          (event) => event && plain(event),
        );
        if (found?.memory === undefined || found.postgres === undefined) continue;
        this.#known.events.push({ memory: found.memory, postgres: found.postgres });
      }
    }
  }
}
