import type * as z from 'zod';
import { InvalidParamsException } from '../errors/action-exceptions.js';
import { UnstorableValueException } from '../errors/value-exceptions.js';
import { encodeBySchema } from '../model/encode-by-schema.js';
import { exactJson } from '../model/exact-json.js';

/** Checks an action's params and writes them as JSON for the log. */
export type ParamsEncoder = (params: unknown) => string;

/**
 * Makes the encoder of an action: by its schema where it declares one, else by JSON with texts for bigints.
 *
 * The encoder throws InvalidParamsException (`invalid-params`) or UnstorableValueException (`unstorable-value`).
 */
export function paramsEncoder(action: string, schema: z.ZodType | undefined): ParamsEncoder {
  if (schema === undefined) return (params) => exactJson(plain(params, action), `${action} params`);
  return (params) => {
    const encoded = encodeBySchema(schema, params, `${action} params`);
    if (!encoded.success) throw invalid(action, encoded.error);
    return exactJson(encoded.data, `${action} params`);
  };
}

function plain(params: unknown, action: string): unknown {
  if (params === undefined) return null;
  try {
    const json = JSON.stringify(params, (_key, value: unknown) =>
      typeof value === 'bigint' ? value.toString() : value,
    );
    return JSON.parse(json) as unknown;
  } catch (error) {
    const reason = 'JSON cannot write them; declare their schema in @FrameworkAction';
    throw new UnstorableValueException(`${action} params`, reason, { cause: error });
  }
}

function invalid(action: string, error: z.ZodError): InvalidParamsException {
  const issues = error.issues.map(({ path, message }) => ({ path: path.join('.'), message }));
  return new InvalidParamsException(action, issues, { cause: error });
}
