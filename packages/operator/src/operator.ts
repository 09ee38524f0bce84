import type { DatabaseRegistry } from '@framework/core';
import type {
  BlockedFilter,
  BlockedRow,
  DatabaseDelivery,
  DeadLetterGroup,
  DeliverableEvent,
  FoundKey,
  LogFilter,
  LoggedAction,
  RecordedChange,
  TrackedEvent,
} from '@framework/core/adapter';
import { OperatorRequestError, UnknownHandlerError } from '@framework/core/adapter';
import { DeliveryOperator, type HandlerStatus } from '@framework/events';

import {
  type OfShards,
  type PartialAnswer,
  type PartialPage,
  ask,
  failureOf,
  operatorStoreOf,
  shardTexts,
} from './answers.js';
import {
  type BulkChangeOptions,
  type ChangeAnswer,
  type ChangeOptions,
  changeBlocked,
  changeHandler,
} from './changes.js';
import { type Consumer, findConsumers } from './consumers.js';
import type { OperatedRelay, OperatorExtension, OperatorInvariant, OperatorView } from './extension.js';
import { type ShardsOverview, findShards } from './overview.js';
import { readPages } from './pages.js';
import { type PublishAgainOptions, publishAgain } from './publish-again.js';
import { searchLogs } from './search.js';
import { type WhyAnswer, explainId } from './why.js';

const pageDefault = 100;
const groupsDefault = 50;

/** Which page of an answer is wanted. */
export interface PageOptions {
  /** The maximum number of items, 1 to 1,000. Default 100. */
  readonly limit?: number | undefined;
  /** The `next` of the previous page. Default: the first page. */
  readonly after?: string | undefined;
}

/** Which events to look for; every given field must match. */
export interface EventSearch extends LogFilter {
  /** One shard of the database to search, as `group/member`. Default: all databases. */
  readonly shard?: string | undefined;
}

/** An event of the log, and why each handler has not handled it yet. */
export interface ExplainedEvent {
  readonly event: DeliverableEvent;
  readonly standings: readonly HandlerStatus[];
  /** The shards of the database, as `group/member`. */
  readonly shards: readonly string[];
}

/**
 * The queries and changes of operators, over all databases. It needs no running delivery.
 *
 * Results from unreachable databases are omitted; `failures` lists their shards. Every query uses indexes, and reads a limited number
 * of rows. Every change names who makes it and why, and is recorded in each database that it concerns: before it begins
 * and when it has ended.
 */
export class Operator {
  readonly views: readonly OperatorView[];
  readonly invariants: readonly OperatorInvariant[];
  /** The shards of each database, as `group/member`. */
  readonly shardsOfDatabases: readonly (readonly string[])[];
  readonly #databases: readonly DatabaseDelivery[];
  readonly #extensions: readonly OperatorExtension[];
  readonly #relays: readonly OperatedRelay[];
  readonly #delivery: DeliveryOperator;

  constructor(options: {
    readonly databases: Pick<DatabaseRegistry, 'deliveries'>;
    /** What the application adds. Default: nothing. */
    readonly extensions?: readonly OperatorExtension[];
    /** The consumers that publish to brokers. Default: none. */
    readonly relays?: readonly OperatedRelay[];
  }) {
    const { databases, extensions = [], relays = [] } = options;
    this.#databases = databases.deliveries();
    this.shardsOfDatabases = this.#databases.map(({ shards }) => shardTexts(shards));
    this.#relays = relays;
    this.#delivery = new DeliveryOperator(databases);
    this.#extensions = extensions;
    this.views = extensions.flatMap(({ views = [] }) => views);
    this.invariants = extensions.flatMap(({ invariants = [] }) => invariants);
  }

  /** Each handler and relay: how far it is behind, what is blocked for it, and which processes work for it. */
  consumers(): Promise<PartialAnswer<Consumer>> {
    const names = this.#relays.flatMap(({ name, aliases = [] }) => [name, ...aliases]);
    return findConsumers(this.#databases, new Set(names));
  }

  /** Each database: its shards, how many events its log has by the planner's estimate, and how it keeps them. */
  shards(): Promise<PartialAnswer<ShardsOverview>> {
    return findShards(this.#databases);
  }

  /**
   * The heads of blocked models, database by database and the oldest first; with `dead: true` only dead letters. The events behind
   * them are not listed.
   *
   * @throws UnknownHandlerError `unknown-handler` when no database knows the handler
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   */
  async blocked(filter: BlockedFilter = {}, page: PageOptions = {}): Promise<PartialPage<BlockedRow>> {
    const { limit = pageDefault, after } = page;
    const { items, next, failures } = await this.#delivery.findBlocked(filter, { limit, after });
    return { items, next, failures: failures.map(({ shards, error }) => failureOf(shards, error)) };
  }

  /**
   * Dead letters of each database by handler and by the first line of the error. Counts above 10,000 are lower bounds.
   *
   * @param filter.handler one of its names
   * @param page.limit the maximum number of groups of each database, 1 to 100. Default 50
   */
  async deadLetters(
    filter: { readonly handler?: string | undefined } = {},
    page: PageOptions = {},
  ): Promise<PartialPage<OfShards<DeadLetterGroup>>> {
    const { limit = groupsDefault, after } = page;
    const { handler } = filter;
    const known = await this.#idsOf(handler);
    return readPages(this.#databases, after, async (database, place) => {
      // A database that has not answered is queried again, so that its failure is listed.
      const id =
        known.get(database) ??
        (handler === undefined ? undefined : await database.store.cursors.find(handler));
      if (handler !== undefined && id === undefined) return { items: [], next: undefined };
      return operatorStoreOf(database).groupDeadLetters(id, { limit, after: place });
    });
  }

  /**
   * Gives dead letters all their attempts again; the events behind them follow in the order of their versions.
   *
   * @param filter at least one field besides `dead`
   * @throws OperatorRequestError `operator-request` when the filter is empty, or an option is missing or invalid
   * @throws UnknownHandlerError `unknown-handler` when no database knows the handler
   */
  replay(filter: BlockedFilter, options: BulkChangeOptions): Promise<ChangeAnswer> {
    return changeBlocked(this.#databases, 'replay', filter, options);
  }

  /**
   * Passes over dead letters, or with `dead: false` over heads that will be tried again, so that the events behind them continue. The
   * event behind a skipped one has not been tried, so a repeated call with `dead: false` passes over that one as well, unless the filter
   * names an event.
   *
   * @param filter at least one field besides `dead`
   * @throws OperatorRequestError `operator-request` when the filter is empty, or an option is missing or invalid
   * @throws UnknownHandlerError `unknown-handler` when no database knows the handler
   */
  skip(filter: BlockedFilter, options: BulkChangeOptions): Promise<ChangeAnswer> {
    return changeBlocked(this.#databases, 'skip', filter, options);
  }

  /**
   * Publishes events again that a relay has passed, those of one model in the order of their versions; the relay's cursors stay where they
   * are. Each message has the id of the event and the attribute `republished`, which is the id of the change. The events of a database are
   * listed before the first one is published. It ends there with the first message that the broker does not take, which the failure names;
   * repeat it then, which publishes all of them once more.
   *
   * @param search at least one field
   * @throws OperatorRequestError `operator-request` when the search is empty, an option is missing or invalid, or this process does not have
   * the relay
   * @throws UnknownHandlerError `unknown-handler` when no database knows the relay
   */
  publishAgain({ shard, ...filter }: EventSearch, options: PublishAgainOptions): Promise<ChangeAnswer> {
    return publishAgain(this.#databasesOf(shard), this.#relays, filter, options);
  }

  /**
   * Pauses a handler in every database that knows it; nothing is lost.
   *
   * @param handler one of its names
   * @throws OperatorRequestError `operator-request` when an option is missing or invalid
   * @throws UnknownHandlerError `unknown-handler` when no database knows it
   */
  pause(handler: string, options: ChangeOptions): Promise<ChangeAnswer> {
    return changeHandler(this.#databases, 'pause', handler, options);
  }

  /** Resumes a paused handler where it was; throws as {@link Operator.pause}. */
  resume(handler: string, options: ChangeOptions): Promise<ChangeAnswer> {
    return changeHandler(this.#databases, 'resume', handler, options);
  }

  /**
   * Removes a handler that no code has any more; see `DeliveryOperator.retire`. A database in which it is still in use is among the
   * failures, with the code `handler-in-use`.
   *
   * @param options.discardBlocked whether its blocked models are removed as well, with all events that wait in them. Default false
   * @throws OperatorRequestError `operator-request` when an option is missing or invalid
   * @throws UnknownHandlerError `unknown-handler` when no database knows it
   */
  retire(
    handler: string,
    options: ChangeOptions & { readonly discardBlocked?: boolean | undefined },
  ): Promise<ChangeAnswer> {
    return changeHandler(this.#databases, 'retire', handler, options);
  }

  /**
   * What operators have changed, the newest first of each database. A change without an end goes on, or its process died.
   *
   * @param page.limit the maximum number of each database
   */
  audit({ limit = pageDefault, after }: PageOptions = {}): Promise<PartialPage<OfShards<RecordedChange>>> {
    return readPages(this.#databases, after, (database, place) =>
      operatorStoreOf(database).changes({ limit, after: place }),
    );
  }

  /** The history of a model, by version; for each event also which handlers have passed it. Empty for an unknown id. */
  model(
    id: string,
    { limit = pageDefault, after }: PageOptions = {},
  ): Promise<PartialPage<OfShards<TrackedEvent>>> {
    return readPages(this.#databases, after, (database, place) =>
      operatorStoreOf(database).history(id, { limit, after: place }),
    );
  }

  /**
   * Events of the logs, the newest first. Without a filter, the newest events of all; pages follow the logs backwards. A page may have few
   * events, or none, and still have a `next`: each one examines at most 10,000 events of each database.
   *
   * @throws OperatorRequestError `operator-request` when the search would read a whole log, or the shard is unknown
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   */
  async events(
    { shard, ...filter }: EventSearch = {},
    { limit = pageDefault, after }: PageOptions = {},
  ): Promise<PartialPage<OfShards<TrackedEvent>>> {
    return searchLogs(this.#databasesOf(shard), filter, { limit, after });
  }

  /** One event, and why each handler has not handled it yet. No items when no database knows it. */
  event(id: string): Promise<PartialAnswer<ExplainedEvent>> {
    return ask(this.#databases, async (database) => {
      const found = await new DeliveryOperator({ deliveries: () => [database] }).explain(id);
      if (found.kind !== 'in-log') return [];
      return [{ event: found.event, standings: found.standings, shards: shardTexts(database.shards) }];
    });
  }

  /** What an action committed, in each database that it wrote. No items when no database knows it. */
  action(id: string): Promise<PartialAnswer<OfShards<LoggedAction>>> {
    return ask(this.#databases, async (database) => {
      const action = await operatorStoreOf(database).findAction(id);
      return action === undefined ? [] : [{ ...action, shards: shardTexts(database.shards) }];
    });
  }

  /**
   * What was committed under an idempotency key: the key, and the action with its events if the log still has it.
   *
   * @param principal default: every principal
   */
  idempotencyKey(
    key: string,
    principal?: string,
  ): Promise<PartialAnswer<OfShards<FoundKey & { readonly action: LoggedAction | undefined }>>> {
    return ask(this.#databases, async (database) => {
      const store = operatorStoreOf(database);
      const found = await store.findKeys(key, principal);
      return Promise.all(
        found.map(async (each) => ({
          ...each,
          shards: shardTexts(database.shards),
          action: await store.findAction(each.actionId),
        })),
      );
    });
  }

  /** Explains in plain sentences what stands in the way of an event, a model, an action, or something that an extension knows. */
  why(id: string): Promise<WhyAnswer> {
    return explainId(this.#databases, this.#extensions, id);
  }

  /** @throws OperatorRequestError `operator-request` when the shard is unknown */
  #databasesOf(shard: string | undefined): readonly DatabaseDelivery[] {
    if (shard === undefined) return this.#databases;
    const found = this.#databases.filter(({ shards }) => shardTexts(shards).includes(shard));
    if (found.length > 0) return found;
    throw new OperatorRequestError(`The shard ${shard} is not configured: write group/member, such as 1/0`);
  }

  /** @throws UnknownHandlerError `unknown-handler` when every database answers that it does not know the handler */
  async #idsOf(handler: string | undefined): Promise<ReadonlyMap<DatabaseDelivery, string>> {
    if (handler === undefined) return new Map();
    const { items, failures } = await ask(this.#databases, async (database) => {
      const id = await database.store.cursors.find(handler);
      return id === undefined ? [] : [[database, id] as const];
    });
    if (items.length === 0 && failures.length === 0) throw new UnknownHandlerError(handler);
    return new Map(items);
  }
}
