import type { ActionRecord } from '../persistence/change-set.js';

/** Tells requests apart: SHA-256 of the action's name and its params as JSON, in hexadecimal. */
export async function fingerprintOf({ name, params }: ActionRecord): Promise<string> {
  const request = new TextEncoder().encode(JSON.stringify([name, params]));
  const digest = await crypto.subtle.digest('SHA-256', request);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
