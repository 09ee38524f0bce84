import type { Clock } from '../clock.js';
import type { ExecutionLimits } from '../config/settings.js';
import { LimitExceededError, PlanSealedError, StagedTwiceError } from '../errors/action-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import type { Id } from '../id/id.js';
import { type ModelClass, modelNameOf } from '../id/model-class.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { timeOrderedUuid } from '../id/uuid-v7.js';
import { type EventClass, type EventTypes, type ModelEvent, encodePayload } from '../model/model-event.js';
import { type AnyEntity, Entity, Model, rebuild } from '../model/model.js';
import { type PlanIdentity, readOf, setStaged, uncommittedVersion } from '../model/provenance.js';
import type { Change, EventRecord } from '../storage/change-set.js';
import type { ModelMapper } from '../storage/repository.js';

/** What a plan stages on one shard. */
export interface ShardPlan {
  readonly shard: ShardIdentifier;
  readonly changes: readonly Change[];
  readonly events: readonly EventRecord[];
  /** The models from which changes were made, as far as something is known of where their versions come from. */
  readonly bases: readonly AnyEntity[];
  /** Identifies it to the models that are staged on it, which may outlive it. */
  readonly identity: PlanIdentity;
}

/** A {@link ShardPlan} under construction. */
interface OpenShardPlan extends ShardPlan {
  readonly changes: Change[];
  readonly events: EventRecord[];
  readonly bases: AnyEntity[];
}

let seal: (plan: Plan, result: unknown) => readonly ShardPlan[];

/**
 * Ends staging and returns what was staged, in the fixed order of shards. Only the executor may call it.
 *
 * @param result what perform has returned, if it has
 * @throws InvariantViolationError `invariant-violation` when the result is, or contains, a model with an event that was not staged
 */
export function sealPlan(plan: Plan, result?: unknown): readonly ShardPlan[] {
  return seal(plan, result);
}

/**
 * Collects what one attempt of an action will write, and refuses what could not be written.
 *
 * Each staging method returns the model as it will be stored, with its version increased by one and without its events.
 */
export class Plan {
  readonly #actionName: string;
  readonly #repositories: ReadonlyMap<unknown, ModelMapper>;
  readonly #limits: ExecutionLimits;
  readonly #clock: Clock;
  readonly #eventTypes: EventTypes;
  /** The models that were staged, as they were passed, by name and id. */
  readonly #staged = new Map<string, AnyEntity>();
  readonly #shards = new Map<ShardIdentifier, OpenShardPlan>();
  #eventCount = 0;
  #sealed = false;

  static {
    seal = (plan, result) => plan.#seal(result);
  }

  /** Created by the executor, one for each attempt. */
  constructor(context: {
    readonly actionName: string;
    readonly repositories: ReadonlyMap<unknown, ModelMapper>;
    readonly limits: ExecutionLimits;
    readonly clock: Clock;
    readonly eventTypes: EventTypes;
  }) {
    this.#actionName = context.actionName;
    this.#repositories = context.repositories;
    this.#limits = context.limits;
    this.#clock = context.clock;
    this.#eventTypes = context.eventTypes;
  }

  /** Whether perform has returned. */
  get sealed(): boolean {
    return this.#sealed;
  }

  /**
   * Stages a new model.
   *
   * @throws PlanSealedError `plan-sealed` after perform returned
   * @throws StagedTwiceError `staged-twice` when its id is already staged
   * @throws UnstorableValueError `unstorable-value` when a value would not be read back unchanged
   * @throws LimitExceededError `limit-exceeded` beyond the executor's limits
   * @throws InvariantViolationError `invariant-violation` when it was stored before, or no repository stores its class
   */
  add<M extends AnyEntity>(model: M): M {
    this.#assertModel(model);
    if (model.version !== 0) throw misuse(model, `was stored before (version ${model.version}): use update`);
    return this.#stage('add', model);
  }

  /**
   * Stages the next version of a model that was read; it is written only if the row still has the version that was read.
   *
   * @throws as {@link add}; InvariantViolationError when it was never stored
   */
  update<M extends AnyEntity>(model: M): M {
    this.#assertModel(model);
    if (model.version === 0) throw misuse(model, 'was never stored: use add');
    return this.#stage('update', model);
  }

  /** Stages several new models. */
  addAll<M extends AnyEntity>(models: readonly M[]): readonly M[] {
    return this.#listOf(models).map((model) => this.add(model));
  }

  /** Stages the next versions of several models. */
  updateAll<M extends AnyEntity>(models: readonly M[]): readonly M[] {
    return this.#listOf(models).map((model) => this.update(model));
  }

  #seal(result: unknown): readonly ShardPlan[] {
    this.#sealed = true;
    for (const returned of modelsIn(result)) if (returned.events.length > 0) this.#assertStaged(returned);
    return [...this.#shards.values()].sort((one, other) => ShardIdentifier.compare(one.shard, other.shard));
  }

  /** A model that perform returns without having staged it would look as if it had been written. */
  #assertStaged(result: AnyModel): void {
    const staged = this.#staged.get(keyOf(result));
    const events: readonly unknown[] = staged instanceof Model ? staged.events : [];
    if (result.events.every((event) => events.includes(event))) return;
    throw new InvariantViolationError(
      `${this.#actionName} returns ${nameOf(result)} ${result.id.value} with events that it has not staged: ` +
        'stage it with this.plan().update(…) or add(…)',
    );
  }

  /** The compiler does not check every application. */
  #listOf<M>(models: readonly M[]): readonly M[] {
    if (Array.isArray(models)) return models;
    throw new InvariantViolationError(
      `${this.#actionName} stages ${described(models)} with addAll or updateAll: pass a list of models`,
    );
  }

  /** The compiler does not check every application. */
  #assertModel(model: unknown): void {
    if (model instanceof Entity) return;
    throw new InvariantViolationError(`${this.#actionName} stages ${described(model)}: stage a model`);
  }

  #stage<M extends AnyEntity>(kind: Change['kind'], model: M): M {
    if (this.#sealed) throw new PlanSealedError(this.#actionName);
    const repository = this.#repositories.get(model.constructor);
    if (repository === undefined)
      throw misuse(model, "has no repository: add it to the executor's repositories");
    const staged = this.#nextVersion(kind, model);
    const row = repository.encode(staged);
    const shard = repository.strategy.shardOfModel(staged);
    const events = model instanceof Model ? this.#eventRecords(model, staged.version) : [];
    this.#reserve(model, events.length);
    const { changes, events: planned, bases, identity } = this.#shardPlan(shard);
    setStaged(staged, identity);
    changes.push({ kind, repository, model: staged, expectedVersion: model.version, row });
    planned.push(...events);
    if (readOf(model) !== undefined || uncommittedVersion(model) !== undefined) bases.push(model);
    return staged;
  }

  #nextVersion<M extends AnyEntity>(kind: Change['kind'], model: M): M {
    const version = model.version + 1;
    if (!(model instanceof Model)) return rebuild(model, { version });
    const updatedDate = kind === 'add' ? model.updatedDate : this.#clock.now();
    return rebuild<M>(model, { version, updatedDate, events: [] });
  }

  #eventRecords(model: AnyModel, version: number): EventRecord[] {
    return model.events.map((event, index) =>
      eventRecord(event, model, {
        version,
        ordinal: this.#eventCount + index,
        limits: this.#limits,
        eventTypes: this.#eventTypes,
      }),
    );
  }

  /** Records the id as staged, unless it is staged already or a limit is reached. Called last, when nothing else can fail. */
  #reserve(model: AnyEntity, eventCount: number): void {
    const { changesMax, eventsMax } = this.#limits;
    const key = keyOf(model);
    if (this.#staged.has(key)) throw new StagedTwiceError(nameOf(model), model.id.value);
    if (this.#staged.size >= changesMax) throw tooMany('changesMax', changesMax, this.#actionName);
    if (this.#eventCount + eventCount > eventsMax) throw tooMany('eventsMax', eventsMax, this.#actionName);
    this.#staged.set(key, model);
    this.#eventCount += eventCount;
  }

  #shardPlan(shard: ShardIdentifier): OpenShardPlan {
    let shardPlan = this.#shards.get(shard);
    if (shardPlan === undefined) {
      shardPlan = { shard, changes: [], events: [], bases: [], identity: { isCommitted: false } };
      this.#shards.set(shard, shardPlan);
    }
    return shardPlan;
  }
}

type AnyModel = Model<unknown, Id<unknown>, string>;

/** How many objects of a result are searched for models; a result with more is a list of what was read. */
const partsMax = 10_000;

/** The models in a result: itself, or those in its arrays, maps, sets and plain objects, which may contain each other. */
function* modelsIn(result: unknown): Iterable<AnyModel> {
  // Iterating over a set also visits what is added meanwhile.
  const parts = new Set([result]);
  for (const part of parts) {
    if (part instanceof Model) yield part;
    else if (typeof part === 'object' && part !== null) {
      for (const each of partsOf(part)) {
        if (parts.size >= partsMax) break;
        if (typeof each === 'object' && each !== null) parts.add(each);
      }
    }
  }
}

function partsOf(value: object): Iterable<unknown> {
  // A list may be almost empty, and yet have billions of places.
  if (Array.isArray(value)) return value.slice(0, partsMax);
  if (value instanceof Set) return value;
  if (value instanceof Map) return value.values();
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return [];
  // Getters are not called: one of them may throw.
  return Object.values(Object.getOwnPropertyDescriptors(value)).map((property): unknown => property.value);
}

function nameOf(model: AnyEntity): string {
  return modelNameOf(model.constructor as ModelClass<unknown>);
}

function keyOf(model: AnyEntity): string {
  return `${nameOf(model)} ${model.id.value}`;
}

function described(value: unknown): string {
  if (value instanceof Promise) return 'a promise, which it must await';
  if (value instanceof Entity) return `the ${nameOf(value)} ${value.id.value}`;
  return typeof value === 'object' && value !== null ? 'an object that is no model' : String(value);
}

function misuse(model: AnyEntity, reason: string): InvariantViolationError {
  return new InvariantViolationError(`${nameOf(model)} ${model.id.value} ${reason}`);
}

function tooMany(limit: string, maximum: number, action: string): LimitExceededError {
  return new LimitExceededError(limit, maximum, `${action} stages more than ${limit} (${maximum}): split it`);
}

/**
 * Makes the log's record of an event that is attached to a model.
 *
 * @throws InvariantViolationError `invariant-violation` when the event belongs to another model, or another class of events has
 * its `event_type`
 * @throws UnstorableValueError `unstorable-value` when its payload would not be read back unchanged
 * @throws LimitExceededError `limit-exceeded` when its payload is too long
 */
function eventRecord(
  event: ModelEvent<unknown>,
  model: AnyEntity,
  context: {
    readonly version: number;
    readonly ordinal: number;
    readonly limits: ExecutionLimits;
    readonly eventTypes: EventTypes;
  },
): EventRecord {
  const type = context.eventTypes.claim(event.constructor as unknown as EventClass);
  if (event.modelId !== model.id.value || event.model !== model.constructor) {
    throw new InvariantViolationError(
      `${type} of ${modelNameOf(event.model)} ${event.modelId} is attached to ${model.constructor.name} ${model.id.value}: ` +
        'attach an event to the model whose class and id it was built with',
    );
  }
  const payload = encodePayload(event);
  const { payloadCharactersMax } = context.limits;
  if (payload.length > payloadCharactersMax) {
    throw new LimitExceededError(
      'payloadCharactersMax',
      payloadCharactersMax,
      `The payload of ${type} has ${payload.length} characters: at most ${payloadCharactersMax} are allowed`,
    );
  }
  return {
    id: timeOrderedUuid(),
    ordinal: context.ordinal,
    modelId: event.modelId,
    modelName: modelNameOf(event.model),
    modelVersion: context.version,
    type,
    payload,
  };
}
