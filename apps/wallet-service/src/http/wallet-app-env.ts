import type { Principal } from '@framework/core';
import type { OpenAPIHono } from '@hono/zod-openapi';
import type { RequestBody } from './request/request-body.js';

/** What every request carries on its way through the entry. */
export interface WalletEnv {
  readonly Bindings: {
    /** What the client sends after the headers, for operations that take a body. */
    readonly body: RequestBody;
  };
  readonly Variables: {
    /** Names the request in the log, in the answer and beside the events that it leads to. */
    readonly requestId: string;
    /** Who sent it; not there on the health and documentation routes. */
    readonly principal: Principal;
  };
}

/** The HTTP entry while its operations are added. */
export type WalletApp = OpenAPIHono<WalletEnv>;
