import * as z from 'zod';
import { UnstorableValueException } from '../errors/value-exceptions.js';

/**
 * Writes a value by a schema, backwards: what the schema reads is what this gives.
 *
 * @param name names the value in the error, such as `WalletCreatedEvent`
 * @throws UnstorableValueException `unstorable-value` when the schema cannot work backwards, whatever the
 * value is, or the value holds itself
 */
export function encodeBySchema(
  schema: z.ZodType,
  value: unknown,
  name: string,
): z.ZodSafeParseResult<unknown> {
  try {
    return z.safeEncode(schema, value);
  } catch (error) {
    throw whyNot(error, name);
  }
}

function whyNot(error: unknown, name: string): unknown {
  // By name, because the schema may be of another copy of zod.
  if (error instanceof Error && error.name === 'ZodEncodeError') {
    const reason = 'its schema has a transform, which works in one direction only; use z.codec instead';
    return new UnstorableValueException(name, reason, { cause: error });
  }
  // What a schema that names itself throws for a value that holds itself.
  if (error instanceof RangeError && error.message.includes('call stack')) {
    return new UnstorableValueException(name, 'it is nested too deeply, or holds itself', { cause: error });
  }
  if (error instanceof z.core.$ZodAsyncError) {
    const reason = 'its schema has an asynchronous check or codec; use synchronous ones';
    return new UnstorableValueException(name, reason, { cause: error });
  }
  return error;
}
