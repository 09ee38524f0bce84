import type { ActionExecutor, DatabaseRegistry, Principal } from '@framework/core';
import type { Delivery } from '@framework/events';
import type { OpenAPIHono } from '@hono/zod-openapi';

import type { TransferRepository } from '../transfer/transfer-repository.js';
import type { WalletRepository } from '../wallet/wallet-repository.js';
import type { RequestBody } from './request-body.js';

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

/** What the HTTP entry serves: the composition gives it, and nothing here knows how it was put together. */
export interface WalletService {
  readonly databases: DatabaseRegistry;
  readonly wallets: WalletRepository;
  readonly transfers: TransferRepository;
  readonly executor: ActionExecutor;
  /** Brings committed events to their handlers, or tells the processes that do. */
  readonly delivery: Pick<Delivery, 'start' | 'started' | 'startedOn' | 'stop' | 'restartNeed'>;
  /** Tells who sent a request; a real service reads a token of it. */
  readonly principalOf: (request: Request) => Principal | Promise<Principal>;
}

/** Tells the client by which id the log knows its request; every answer has it. */
export const requestIdHeader = 'x-request-id';
