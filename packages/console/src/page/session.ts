import { signal } from '@preact/signals';

import { decoded } from './address.js';
import type { About } from './answers.js';
import { parseExact } from './exact-json.js';

const tokenKey = 'operator-token';

/** What must be sent with every request; `undefined` until somebody enters it. It is forgotten with the tab. */
export const token = signal(takenFromAddress() ?? sessionStorage.getItem(tokenKey) ?? undefined);

/** What the operator can be asked; `undefined` until the token is accepted. */
export const about = signal<About | undefined>(undefined);

/** Why the token is asked for again. */
export const refusal = signal<string | undefined>(undefined);

/** An answer that is a problem, or none at all. */
export class ApiError extends Error {
  /** 0 when there was no answer. */
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, detail: string) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

// The address of a page that is already open may be replaced by one with a token: the page is not loaded again.
addEventListener('hashchange', () => {
  const given = takenFromAddress();
  if (given === undefined) return;
  dispatchEvent(new HashChangeEvent('hashchange'));
  signIn(given).catch((error: unknown) => {
    if (error instanceof ApiError && error.status !== 401) refusal.value = error.message;
  });
});

/** A token in the fragment is taken out of the address, so that it is in no history and in no link that is copied. */
function takenFromAddress(): string | undefined {
  const [, given] = /^#token=([^&]+)/.exec(location.hash) ?? [];
  if (given === undefined) return undefined;
  history.replaceState(null, '', '#/');
  const value = decoded(given);
  sessionStorage.setItem(tokenKey, value);
  return value;
}

/** Uses a token if it is accepted. */
export async function signIn(value: string): Promise<void> {
  token.value = value;
  refusal.value = undefined;
  about.value = await ask<About>('about');
  sessionStorage.setItem(tokenKey, value);
}

export function signOut(reason?: string): void {
  sessionStorage.removeItem(tokenKey);
  token.value = undefined;
  about.value = undefined;
  refusal.value = reason;
}

/** Sends a request to the API, which lies beside the page, whatever prefix is in front of both. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  // Not the path alone: one that begins with two slashes would name another host.
  const url = new URL(`../${path}`, `${location.origin}${location.pathname}`);
  const headers = new Headers(init.headers);
  const used = token.value;
  headers.set('authorization', `Bearer ${used ?? ''}`);
  const response = await fetch(url, { ...init, headers }).catch((error: unknown) => {
    if (init.signal?.aborted === true) throw error;
    throw new ApiError(0, 'no-answer', 'The service does not answer.');
  });
  if (response.ok) return response;
  // The answer to a token that was replaced meanwhile says nothing about the present one.
  if (response.status === 401 && token.value === used) signOut('This token is not accepted.');
  throw await problemIn(response);
}

async function problemIn(response: Response): Promise<ApiError> {
  const fallback = `The service answered with ${response.status}.`;
  try {
    const { code, detail } = (await response.json()) as { readonly code?: string; readonly detail?: string };
    return new ApiError(response.status, code ?? `${response.status}`, detail ?? fallback);
  } catch {
    return new ApiError(response.status, `${response.status}`, fallback);
  }
}

type Query = Readonly<Record<string, string | number | undefined>>;

/** @throws ApiError when the answer is not the one that is asked for */
export async function ask<Answer>(path: string, query: Query = {}, stop?: AbortSignal): Promise<Answer> {
  const given = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, `${value}`]],
  );
  const search = given.length === 0 ? '' : `?${new URLSearchParams(given).toString()}`;
  const response = await send(`${path}${search}`, stop && { signal: stop });
  return parseExact(await response.text()) as Answer;
}

/** @throws ApiError when the change is refused */
export async function change<Answer>(path: string, body: object): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  const response = await send(path, { method: 'POST', headers, body: JSON.stringify(body) });
  return parseExact(await response.text()) as Answer;
}
