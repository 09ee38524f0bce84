import type {
  ActionExecutor,
  DatabaseRegistry,
  Principal,
  Repository,
  ShardIdentifier,
} from '@framework/core';
import type { ModelMapper } from '@framework/core/adapter';
import type { Delivery } from '@framework/events';
import type { Relay, RelayState } from '@framework/relay';
import type { OpenAPIHono } from '@hono/zod-openapi';

import type { Authentication } from '../security/authentication.js';
import type { WalletAccess } from '../security/wallet-access.js';
import type { Transfer } from '../transfer/transfer.js';
import type { WalletRepository } from '../wallet/wallet-repository.js';
import type { Client } from './client-address.js';
import type { RequestBody } from './request-body.js';
import type { ShardCapacity } from './shard-capacity.js';

/** What accompanies every request through the HTTP layer. */
export interface WalletEnv {
  readonly Bindings: {
    /** The body that the client sends, for operations that accept one. */
    readonly body: RequestBody;
    readonly client: Client;
    /** Reads no further request from the client's connection for this long, in milliseconds. */
    readonly pause: (durationMs: number) => void;
  };
  readonly Variables: {
    /** Identifies the request in the log, in the answer and in the headers of its events. */
    readonly requestId: string;
    /** Who sent the request; unset on the health and documentation routes. */
    readonly principal: Principal;
    /** Limits the requests of each shard. */
    readonly capacity: ShardCapacity;
    /** What the log says of an operation's refusals. */
    readonly subject: LogSubject;
    /** The shards that the request asks, once it is validated. */
    readonly shards: readonly ShardIdentifier[];
    /** What the request asks for, once it is validated. */
    readonly input: unknown;
    /** The code of the problem with a request that no operation answers. */
    readonly unansweredCode: string;
  };
}

/** What an operation is about. */
export interface LogSubject {
  /** The name of the model. */
  readonly model: string;
  /** The name of the action that it executes, if it does. */
  readonly action?: string;
}

/** The HTTP layer, to which operations are added. */
export type WalletApp = OpenAPIHono<WalletEnv>;

/** The application behind the HTTP layer, which does not know how it was composed. */
export interface WalletService {
  /** Begins the types and topics of its events. */
  readonly namespace: string;
  readonly databases: DatabaseRegistry;
  readonly wallets: WalletRepository & ModelMapper;
  readonly transfers: Repository<Transfer>;
  readonly executor: ActionExecutor;
  /** Delivers committed events to their handlers, or notifies the processes that do. */
  readonly delivery: Pick<Delivery, 'start' | 'started' | 'startedOn' | 'stop' | 'restartNeed'>;
  /** The configured relays, whether or not they run in this process. */
  readonly relays: readonly ServedRelay[];
  /** Finds out who sends a request; `undefined` when everybody is answered. */
  readonly authentication: Authentication | undefined;
  /** Who may read what. The actions have policies of their own. */
  readonly access: WalletAccess;
}

/** A relay whose health the service reports, and that operators let publish events again. */
export interface ServedRelay extends Pick<Relay, 'publishAgain' | 'wants'> {
  readonly name: string;
  /** Its former names, one of which a database may know it by. */
  readonly aliases: readonly string[];
  /** Its current state; `undefined` when it runs in other processes only. */
  readonly state: () => RelayState | undefined;
}

/** Tells the client the id of its request in the log; set on every answer. */
export const requestIdHeader = 'x-request-id';
