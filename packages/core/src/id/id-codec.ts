import * as z from 'zod';
import type { ModelClass } from '../model/model-class.js';
import { Id } from './id.js';
import { ShardedId } from './sharded-id.js';

/**
 * The schema of a model's sharded id, written as text: for params of actions and payloads of events.
 *
 * Accepts any `Id` of the model that is a UUID version 7 when it writes, and gives a `ShardedId` when it reads.
 */
export function shardedIdCodec<T>(model: ModelClass<T>): z.ZodType<Id<T>, string> {
  const id = z.custom<Id<T>>((value) => value instanceof Id, 'Invalid input: expected an id');
  return z.codec(z.uuidv7(), id, {
    decode: (value) => ShardedId.of(model, value),
    encode: (value) => value.value,
  });
}
