import { InvalidIdempotencyKeyException } from '../errors/action-exceptions.js';
import type { ActionRecord } from '../persistence/change-set.js';
import { isStorableText } from '../model/storable-text.js';
import type { KeyScope } from '../persistence/idempotency-keys.js';
import { handlersNamespace } from './handled-event.js';

/** What still fits into one entry of an index. */
const charactersMax = 255;

/**
 * The scope in which a key is unique: within the namespace, for the principal.
 *
 * @param ofHandler whether a handler executes the action: such keys are a space of their own
 * @throws InvalidIdempotencyKeyException `invalid-idempotency-key` when it is empty, longer than 255 characters, or no text
 */
export function keyScope({ namespace, principal }: ActionRecord, key: string, ofHandler: boolean): KeyScope {
  if (typeof key !== 'string') throw new InvalidIdempotencyKeyException('is no text');
  if (key.length === 0) throw new InvalidIdempotencyKeyException('is empty');
  if (key.length > charactersMax)
    throw new InvalidIdempotencyKeyException(`has ${key.length} characters: keep it within ${charactersMax}`);
  if (!isStorableText(key)) throw new InvalidIdempotencyKeyException('holds a character that is not text');
  return { namespace: ofHandler ? handlersNamespace(namespace) : namespace, principal, key };
}
