import {
  type DatabaseRegistry,
  EntityNotFoundException,
  FrameworkException,
  type ModelClass,
  ShardedId,
  modelNameOf,
} from '@framework/core';
import { notConfigured } from '../shard-causes.js';

/**
 * Reads the id of something that may exist: the text is a UUID, of whatever version.
 *
 * @throws EntityNotFoundException `entity-not-found` when no model can have the id, because it carries no shard or one
 * that is not configured
 */
export function existingId<T>(model: ModelClass<T>, uuid: string, databases: DatabaseRegistry): ShardedId<T> {
  const id = parse(model, uuid);
  if (id === undefined) throw new EntityNotFoundException(modelNameOf(model), uuid);
  const shard = id.resolveShardIdentifier();
  if (databases.shards.includes(shard)) return id;
  const reason = `${shard.toString()}, which its id names, is ${notConfigured}`;
  throw new EntityNotFoundException(modelNameOf(model), uuid, reason);
}

function parse<T>(model: ModelClass<T>, uuid: string): ShardedId<T> | undefined {
  try {
    return ShardedId.of(model, uuid);
  } catch (error) {
    if (FrameworkException.find(error)?.code === 'invalid-id') return undefined;
    throw error;
  }
}
