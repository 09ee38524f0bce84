import {
  type DatabaseRegistry,
  EntityNotFoundError,
  FrameworkError,
  type ModelClass,
  type ShardIdentifier,
  ShardedId,
} from '@framework/core';
import { modelNameOf } from '@framework/core/adapter';

import { notConfigured } from '../health/shard-causes.js';

/**
 * Parses the id of a model that should exist. The text is a UUID of any version.
 *
 * @throws EntityNotFoundError `entity-not-found` when no model can have the id, because it contains no shard or one that
 * is not configured
 */
export function existingId<T>(
  model: ModelClass<T>,
  uuid: string,
  databases: Pick<DatabaseRegistry, 'shards'>,
): ShardedId<T> {
  const id = parse(model, uuid);
  if (id === undefined) throw new EntityNotFoundError(modelNameOf(model), uuid);
  const shard = id.resolveShardIdentifier();
  if (databases.shards.includes(shard)) return id;
  const reason = `its id names ${shard.toString()}, which is ${notConfigured}`;
  throw new EntityNotFoundError(modelNameOf(model), uuid, reason);
}

function parse<T>(model: ModelClass<T>, uuid: string): ShardedId<T> | undefined {
  try {
    return ShardedId.of(model, uuid);
  } catch (error) {
    if (FrameworkError.find(error)?.code === 'invalid-id') return undefined;
    throw error;
  }
}

/** The shard that an id contains; none if it is no id of a sharded model. */
export function shardsIn(uuid: string): readonly ShardIdentifier[] {
  const id = parse(Object, uuid);
  return id === undefined ? [] : [id.resolveShardIdentifier()];
}
