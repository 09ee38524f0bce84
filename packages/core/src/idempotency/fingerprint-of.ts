import type * as z from 'zod';
import type { ActionRecord } from '../persistence/change-set.js';
import { earlierRequestJsons, requestJson } from './request-json.js';

/**
 * Distinguishes requests: SHA-256 of the action's name and its params as JSON, in hexadecimal; see {@link requestJson}.
 *
 * @param schema of the params, if the action declares one
 */
export function fingerprintOf(
  { name, params }: ActionRecord,
  schema: z.core.$ZodType | undefined,
): Promise<string> {
  return sha256(JSON.stringify([name, requestJson(params, schema)]));
}

/** Whether a fingerprint that an earlier version of the action or of the framework stored is that of this request. */
export async function isEarlierFingerprint(
  stored: string,
  { name, params }: ActionRecord,
  schema: z.core.$ZodType | undefined,
): Promise<boolean> {
  const earlier = earlierRequestJsons(params, schema).map((json) => sha256(JSON.stringify([name, json])));
  return (await Promise.all(earlier)).includes(stored);
}

async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
