import { createHash } from 'node:crypto';
import type * as z from 'zod';
import type { ActionRecord } from '../persistence/change-set.js';
import { earlierRequestJsons, requestJson } from './request-json.js';

/**
 * Distinguishes requests: SHA-256 of the action's name and its params as JSON, in hexadecimal; see {@link requestJson}.
 *
 * @param schema of the params, if the action declares one
 */
export function fingerprintOf({ name, params }: ActionRecord, schema: z.core.$ZodType | undefined): string {
  return sha256(JSON.stringify([name, requestJson(params, schema)]));
}

/** Whether a fingerprint that an earlier version of the action or of the framework stored is that of this request. */
export function isEarlierFingerprint(
  stored: string,
  { name, params }: ActionRecord,
  schema: z.core.$ZodType | undefined,
): boolean {
  return earlierRequestJsons(params, schema).some((json) => sha256(JSON.stringify([name, json])) === stored);
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
