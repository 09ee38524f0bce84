import {
  AccessDeniedError,
  type ActionPolicy,
  EntityNotFoundError,
  type FrameworkConfig,
  type ModelClass,
  type Principal,
  type Repository,
  type Id,
  type ShardedId,
} from '@framework/core';
import { modelNameOf } from '@framework/core/adapter';
import { parseSection } from '@framework/http';
import { securitySchema as baseSchema, jwtSchema } from '@framework/http/security';
import * as z from 'zod';

import { Transfer } from '../transfer/transfer.js';
import { Wallet } from '../wallet/wallet.js';

const role = z.string({ error: 'must be a text' }).min(1, 'must not be empty');

/** The section `framework.security`, with the role of operators. */
export const securitySchema = baseSchema.extend({
  jwt: jwtSchema.safeExtend({ operatorRole: role.optional() }).optional(),
});

/** The section `framework.security`. Without `jwt`, every request is served. */
type SecuritySettings = z.output<typeof securitySchema>;

/**
 * Reads the section `framework.security`.
 *
 * @throws ConfigurationError `invalid-configuration` with every fault
 */
export function securitySettings({ security }: Pick<FrameworkConfig, 'security'>): SecuritySettings {
  return parseSection('security', securitySchema, security);
}

/** An action on one wallet. */
interface OfWallet {
  readonly walletId: Id<Wallet>;
}

/**
 * Who may do what with wallets and transfers: their owners, and operators in part. For everybody else, a wallet is not there.
 *
 * Without authentication, everybody may do everything, except for the steps of sagas.
 */
export class WalletAccess {
  readonly #wallets: Pick<Repository<Wallet>, 'getById'>;
  readonly #isOpen: boolean;
  readonly #operatorRole: string | undefined;

  constructor(wallets: Pick<Repository<Wallet>, 'getById'>, { jwt }: SecuritySettings) {
    this.#wallets = wallets;
    this.#isOpen = jwt === undefined;
    this.#operatorRole = jwt?.operatorRole;
  }

  /** Opening a wallet: for oneself, and by operators for everybody. */
  readonly opening: ActionPolicy<{ readonly ownerId: string }> = {
    authorize: ({ principal, params: { ownerId } }) => {
      if (this.#isOpen || isOwner(principal, ownerId) || this.#isOperator(principal)) return;
      throw new AccessDeniedError('A wallet can be opened only for the subject of the token');
    },
  };

  /** Putting money into a wallet and taking it out: only by its owner. */
  readonly owning: ActionPolicy<OfWallet> = {
    authorize: ({ principal, params: { walletId } }) => this.#assertOwner(principal, walletId),
  };

  /** Closing a wallet: by its owner and by operators. */
  readonly closing: ActionPolicy<OfWallet> = {
    authorize: async ({ principal, params: { walletId } }) => {
      if (!this.#isOperator(principal)) await this.#assertOwner(principal, walletId);
    },
  };

  /** Sending money from a wallet, to any other: only by its owner. */
  readonly sending: ActionPolicy<{ readonly sourceId: ShardedId<Wallet> }> = {
    authorize: ({ principal, params: { sourceId } }) => this.#assertOwner(principal, sourceId),
  };

  /** Whether a principal may read the wallets of an owner. */
  mayRead(principal: Principal, ownerId: string): boolean {
    return this.#isOpen || isOwner(principal, ownerId) || this.#isOperator(principal);
  }

  /** Whether a principal may know on whose behalf a wallet was changed: not who sent money, nor which operator closed it. */
  mayKnow(principal: Principal, other: string): boolean {
    return this.mayRead(principal, other);
  }

  /**
   * Reads a wallet.
   *
   * @throws EntityNotFoundError `entity-not-found` when there is none, or the principal must not know
   */
  async wallet(principal: Principal, id: ShardedId<Wallet>): Promise<Wallet> {
    const wallet = await this.#wallets.getById(id);
    if (!this.mayRead(principal, wallet.ownerId)) throw notFound(Wallet, id);
    return wallet;
  }

  /**
   * Refuses a transfer from a wallet that the principal may not read.
   *
   * @throws EntityNotFoundError `entity-not-found` with the id of the transfer
   */
  async assertReadable(principal: Principal, { id, sourceId }: Transfer): Promise<void> {
    if (this.#isOpen || this.#isOperator(principal)) return;
    const { ownerId } = await this.#wallets.getById(sourceId);
    if (!isOwner(principal, ownerId)) throw notFound(Transfer, id);
  }

  /** As if it were not there, for others than the owner of a wallet. */
  async #assertOwner(principal: Principal, id: Id<Wallet>): Promise<void> {
    if (this.#isOpen) return;
    const { ownerId } = await this.#wallets.getById(id);
    if (!isOwner(principal, ownerId)) throw notFound(Wallet, id);
  }

  #isOperator({ roles = [] }: Principal): boolean {
    return this.#operatorRole !== undefined && roles.includes(this.#operatorRole);
  }
}

/** The steps of sagas, which handlers execute for the initiator, and nobody else. */
export const handlersOnly: ActionPolicy = {
  authorize: ({ handledEvent }) => {
    if (handledEvent === undefined) throw new AccessDeniedError('Only handlers execute the steps of a saga');
  },
};

/** The owner of a wallet is the subject of a token, a UUID. */
function isOwner({ name }: Principal, ownerId: string): boolean {
  return name.toLowerCase() === ownerId.toLowerCase();
}

/** The same error as for an id that does not exist. */
function notFound<M>(model: ModelClass<M>, id: Id<M>): EntityNotFoundError {
  return new EntityNotFoundError(modelNameOf(model), id.value);
}
