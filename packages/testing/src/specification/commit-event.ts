import {
  type Clock,
  type DatabaseRegistry,
  EmbeddedBitsShardingStrategy,
  type EventClass,
  type ModelEvent,
  type Principal,
  type ShardIdentifier,
  ShardedId,
} from '@framework/core';
import {
  type ModelMapper,
  encodePayload,
  eventTypeOf,
  exactJson,
  modelNameOf,
} from '@framework/core/adapter';

import { type MemoryTables, memoryManager } from '../memory/index.js';

/** The origin of an event that a specification commits itself. */
export interface EventOrigin {
  /** The name of the action that led to the event. Default: `GivenAction`. */
  readonly actionName?: string;
  /** The action's params, as JSON values. Default: `{}`. */
  readonly actionParams?: unknown;
  /** The action's principal. Default: the environment's principal. */
  readonly principal?: Principal;
  /** The action's headers. Default: none. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The version that the change produced. Default: that of the stored model, or 1. */
  readonly modelVersion?: number;
}

/**
 * Commits one event on the shard of its model, without changing the model; returns the tables that hold it.
 *
 * @throws UnstorableValueError `unstorable-value` when the payload does not fit the schema of its class
 */
export async function commitEvent(
  event: ModelEvent<unknown>,
  origin: EventOrigin & { readonly principal: Principal },
  environment: {
    readonly databases: DatabaseRegistry;
    readonly repositories: readonly ModelMapper[];
    readonly namespace: string;
    readonly clock: Clock;
  },
): Promise<MemoryTables> {
  const { actionName = 'GivenAction', actionParams = {}, principal, headers = {} } = origin;
  const shard = shardOf(event, environment);
  const manager = memoryManager(environment.databases.transactionManager(shard));
  const modelName = modelNameOf(event.model);
  const stored = manager.rows(modelName).get(event.modelId);
  const newId = (): string => ShardedId.generate(event.model, shard).value;
  await manager.persist({
    shard,
    action: {
      id: newId(),
      name: actionName,
      params: exactJson(actionParams, `params of ${actionName}`),
      namespace: environment.namespace,
      principal: principal.name,
      headers: exactJson(headers, `headers of ${actionName}`),
      startedDate: environment.clock.now(),
    },
    changes: [],
    events: [
      {
        id: newId(),
        ordinal: 0,
        modelId: event.modelId,
        modelName,
        modelVersion: origin.modelVersion ?? stored?.version ?? 1,
        type: eventTypeOf(event.constructor as unknown as EventClass),
        payload: encodePayload(event),
      },
    ],
  });
  return manager.tables;
}

/**
 * The shard of the event's model: the one that its strategy finds from the id, otherwise the one on which the model is stored,
 * otherwise the default shard.
 */
function shardOf(
  { model, modelId }: ModelEvent<unknown>,
  {
    databases,
    repositories,
  }: { readonly databases: DatabaseRegistry; readonly repositories: readonly ModelMapper[] },
): ShardIdentifier {
  const strategy = repositories.find((repository) => repository.model === model)?.strategy;
  const stored = databases
    .eachDatabase()
    .flat()
    .find((manager) => memoryManager(manager).rows(modelNameOf(model)).has(modelId));
  try {
    const told = (strategy ?? new EmbeddedBitsShardingStrategy()).shardOfId(modelId);
    return told ?? stored?.shard ?? databases.defaultShard;
  } catch {
    return stored?.shard ?? databases.defaultShard;
  }
}
