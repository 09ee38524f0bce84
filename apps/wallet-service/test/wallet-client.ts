import assert from 'node:assert/strict';
import { expect } from 'vitest';
import type * as z from 'zod';

import type { walletSchema } from '../src/routes/resources.js';

/** A wallet as the service returns it. */
export type WalletBody = z.infer<typeof walletSchema>;

/** What came back. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Readonly<Record<string, unknown>>;
}

/** An owner for tests in which any owner will do. */
export const anOwner = '7c9e6679-7425-40de-944b-e07fc1f90ae7';

/** Sends HTTP requests to the service, as its clients do. */
export class WalletClient {
  readonly url: string;
  readonly #fetch: typeof fetch;

  /** @param send sends a request. Default: over HTTP */
  constructor(url: string, send: typeof fetch = fetch) {
    this.url = url;
    this.#fetch = send;
  }

  /** Sends a request unchanged. */
  async send(path: string, init: RequestInit = {}): Promise<Answer> {
    const response = await this.#fetch(`${this.url}${path}`, init);
    const text = await response.text();
    const isJson = text !== '' && /json/.test(response.headers.get('content-type') ?? '');
    const body = (isJson ? JSON.parse(text) : {}) as Answer['body'];
    return { status: response.status, headers: Object.fromEntries(response.headers), body };
  }

  get(path: string): Promise<Answer> {
    return this.send(path);
  }

  /** Sends a JSON body: a value, or a text unchanged. */
  post(path: string, body: object | string): Promise<Answer> {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return this.send(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: text });
  }

  /** Sends a JSON body under an idempotency key. */
  postKeyed(path: string, body: object, key: string): Promise<Answer> {
    const headers = { 'content-type': 'application/json', 'idempotency-key': key };
    return this.send(path, { method: 'POST', headers, body: JSON.stringify(body) });
  }

  /** Opens a wallet, by default in EUR on the shard (0, 0). */
  async openWallet(fields: Readonly<Record<string, unknown>> = {}): Promise<WalletBody> {
    const wallet = { country: 'DE', ownerId: anOwner, currency: 'EUR', initialBalance: '100', ...fields };
    const { status, body } = await this.post('/wallets', wallet);
    assert.equal(status, 201);
    return body as WalletBody;
  }

  /** Reads an existing wallet. */
  async wallet(id: string): Promise<WalletBody> {
    const { status, body } = await this.get(`/wallets/${id}`);
    assert.equal(status, 200);
    return body as WalletBody;
  }
}

/** The expected form of an answer with a problem of RFC 9457. */
export function problem(status: number, code: string): object {
  return {
    status,
    headers: {
      'content-type': 'application/problem+json',
      'x-request-id': expect.stringMatching(/^[0-9a-f-]{36}$/),
    },
    body: {
      type: expect.stringMatching(/^urn:problem-type:wallet-service:[a-z-]+$/),
      title: expect.any(String),
      status,
      detail: expect.any(String),
      code,
      instance: expect.stringMatching(/^urn:uuid:[0-9a-f-]{36}$/),
    },
  };
}
