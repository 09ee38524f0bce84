import * as z from 'zod';
import type { ModelClass } from '../model/model-class.js';
import { Id } from './id.js';
import { ShardedId } from './sharded-id.js';

/**
 * The schema of a model's sharded id, written as text: for params of actions and payloads of events.
 *
 * Accepts any `Id` of the model when it writes, and gives a `ShardedId` when it reads.
 */
export function shardedIdCodec<T>(model: ModelClass<T>): z.ZodType<Id<T>, string> {
  const id = z.custom<Id<T>>((value) => value instanceof Id, 'Invalid input: expected an id');
  return z.codec(z.string(), id, {
    decode: (value, context) => {
      try {
        return ShardedId.of(model, value);
      } catch {
        context.issues.push({ code: 'invalid_format', format: 'uuid', input: value });
        return z.NEVER;
      }
    },
    encode: (value) => value.value,
  });
}
