import * as z from 'zod';
import { InvalidParamsException } from '../errors/action-exceptions.js';
import { exactJson } from '../model/exact-json.js';

/** Checks an action's params and writes them as JSON for the log. */
export type ParamsEncoder = (params: unknown) => string;

/**
 * Makes the encoder of an action: by its schema where it declares one, else by JSON with texts for bigints.
 *
 * The encoder throws InvalidParamsException (`invalid-params`) or UnstorableValueException (`unstorable-value`).
 */
export function paramsEncoder(action: string, schema: z.ZodType | undefined): ParamsEncoder {
  if (schema === undefined) return (params) => exactJson(plain(params), `${action} params`);
  return (params) => {
    const encoded = z.safeEncode(schema, params);
    if (!encoded.success) throw invalid(action, encoded.error);
    return exactJson(encoded.data, `${action} params`);
  };
}

function plain(params: unknown): unknown {
  if (params === undefined) return null;
  const json = JSON.stringify(params, (_key, value: unknown) =>
    typeof value === 'bigint' ? value.toString() : value,
  );
  return JSON.parse(json) as unknown;
}

function invalid(action: string, error: z.ZodError): InvalidParamsException {
  const issues = error.issues.map(({ path, message }) => ({ path: path.join('.'), message }));
  return new InvalidParamsException(action, issues, { cause: error });
}
