import type * as z from 'zod';

import { InvariantViolationError } from '../errors/invariant-violation.js';
import { UnstorableValueError } from '../errors/value-errors.js';
import { droppedField } from '../model/dropped-fields.js';
import { encodeBySchema, exactJson } from '../model/exact-json.js';

/** Writes an action's result beside an idempotency key, and reads it again. */
export interface ResultCodec {
  /**
   * The result as JSON; `undefined` for `undefined`.
   *
   * @throws InvariantViolationError `invariant-violation` for a result of an action that declares no schema of it
   * @throws UnstorableValueError `unstorable-value` when it does not fit the schema, or would not survive:
   * a repeat must get the same answer
   */
  encode(result: unknown): string | undefined;
  /** @throws UnstorableValueError `unstorable-value` when the schema no longer reads what was stored */
  decode(json: string | undefined): unknown;
}

/** Makes the codec of an action by the schema that it declares, if any. */
export function resultCodec(action: string, schema: z.ZodType | undefined): ResultCodec {
  return schema === undefined ? nothingOnly(action) : bySchema(`${action} result`, schema);
}

function nothingOnly(action: string): ResultCodec {
  return {
    encode: (result) => {
      if (result === undefined) return undefined;
      throw new InvariantViolationError(
        `${action} has a result that cannot be stored beside an idempotency key: declare its schema in ` +
          '@FrameworkAction({ result })',
      );
    },
    decode: () => undefined,
  };
}

function bySchema(path: string, schema: z.ZodType): ResultCodec {
  return {
    encode: (result) => {
      const encoded = encodeBySchema(schema, result, path);
      if (!encoded.success) throw misfit(path, encoded.error);
      const json = encoded.data === undefined ? undefined : exactJson(encoded.data, path);
      const dropped = droppedField(schema, result, { instances: true });
      if (dropped !== undefined) throw new UnstorableValueError(path + dropped.path, dropped.reason);
      return json;
    },
    decode: (json) => {
      const decoded = schema.safeParse(json === undefined ? undefined : JSON.parse(json));
      if (!decoded.success) throw misfit(path, decoded.error);
      return decoded.data;
    },
  };
}

function misfit(path: string, error: z.ZodError): UnstorableValueError {
  const faults = error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ');
  return new UnstorableValueError(path, `it does not fit its schema (${faults})`, { cause: error });
}
