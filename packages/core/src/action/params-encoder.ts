import type * as z from 'zod';
import { InvalidParamsException } from '../errors/action-exceptions.js';
import { UnstorableValueException } from '../errors/value-exceptions.js';
import { encodeBySchema } from '../model/encode-by-schema.js';
import { droppedField } from '../model/dropped-fields.js';
import { exactJson } from '../model/exact-json.js';

/** Checks an action's params and writes them as JSON for the log. */
export type ParamsEncoder = (params: unknown) => string;

/**
 * Makes the encoder of an action: by its schema where it declares one, else as plain JSON, with ids as their texts and shards as
 * group and member.
 *
 * The encoder throws InvalidParamsException (`invalid-params`) or UnstorableValueException (`unstorable-value`).
 */
export function paramsEncoder(action: string, schema: z.ZodType | undefined): ParamsEncoder {
  if (schema === undefined) return (params) => plainJson(params, `${action} params`);
  return (params) => {
    const encoded = encodeBySchema(schema, params, `${action} params`);
    if (!encoded.success) throw invalid(action, encoded.error);
    const json = exactJson(encoded.data, `${action} params`);
    const dropped = droppedField(schema, params);
    if (dropped !== undefined) {
      const path = dropped.path.replace(/\[(\d+)\]/g, '.$1').slice(1);
      throw new InvalidParamsException(action, [{ path, message: dropped.reason }]);
    }
    return json;
  };
}

function plainJson(params: unknown, path: string): string {
  if (params === undefined) return 'null';
  try {
    return exactJson(params, path, { idsAndShards: true });
  } catch (error) {
    if (!(error instanceof UnstorableValueException)) throw error;
    const reason = `${error.reason} (declare the schema of the params in @FrameworkAction({ params }))`;
    throw new UnstorableValueException(error.path, reason, { cause: error });
  }
}

function invalid(action: string, error: z.ZodError): InvalidParamsException {
  const issues = error.issues.map(({ path, message }) => ({ path: path.join('.'), message }));
  return new InvalidParamsException(action, issues, { cause: error });
}
