import type { ActionExecutor, DatabaseRegistry, Repository } from '@framework/core';
import type { ModelMapper } from '@framework/core/adapter';
import type { Delivery } from '@framework/events';
import type { ServedRelay } from '@framework/http';
import type { Authentication } from '@framework/http/security';
import type { Relay, RelayState } from '@framework/relay';

import type { WalletAccess } from './security/wallet-access.js';
import type { Transfer } from './transfer/transfer.js';
import type { WalletRepository } from './wallet/wallet-repository.js';

/** The composed application, which its HTTP layer and its operators use. */
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
  readonly relays: readonly OperatedRelay[];
  /** Identifies the sender of a request; `undefined` when requests need no token. */
  readonly authentication: Authentication | undefined;
  /** Who may read what. The actions have policies of their own. */
  readonly access: WalletAccess;
}

/** A relay whose health the service reports, and that operators let publish events again. */
interface OperatedRelay extends ServedRelay, Pick<Relay, 'publishAgain' | 'wants'> {
  readonly state: () => RelayState | undefined;
}
