import type { ActionPolicy, FrameworkConfig, Id, Repository, ShardedId } from '@framework/core';
import { parseSection } from '@framework/http';
import { httpSchema as baseSchema, limitsSchema } from '@framework/http/security';
import { Big } from 'big.js';
import { data as currencies } from 'currency-codes';
import * as z from 'zod';

import { InvalidAmountError } from './wallet-error.js';
import type { Wallet } from './wallet.js';

const currencyCodes = new Set(currencies.map(({ code }) => code));

/** The maximum amounts by currency. A number with a fraction is refused, because YAML and JSON would round it. */
const amounts = z
  .record(z.string(), z.unknown(), { error: 'must be a section of currencies' })
  .refine(
    (limits) =>
      Object.entries(limits).every(([code, maximum]) => currencyCodes.has(code) && isExact(maximum)),
    'must have an ISO 4217 code and a maximum in each line, in quotes if it has decimals',
  )
  .transform(
    (limits) => new Map(Object.entries(limits).map(([code, maximum]) => [code, new Big(String(maximum))])),
  )
  .prefault({});

function isExact(maximum: unknown): boolean {
  return typeof maximum === 'number'
    ? Number.isSafeInteger(maximum) && maximum >= 0
    : typeof maximum === 'string' && /^\d{1,20}(\.\d{1,18})?$/.test(maximum);
}

/** The section `framework.http`, with the limits of amounts. */
export const httpSchema = baseSchema.extend({ limits: limitsSchema.safeExtend({ amounts }).prefault({}) });

/**
 * The maximum amounts of the section `framework.http.limits`.
 *
 * @throws ConfigurationError `invalid-configuration` with the path of every fault
 */
export function maximumAmounts({ http }: Pick<FrameworkConfig, 'http'>): ReadonlyMap<string, Big> {
  return parseSection('http', httpSchema, http).limits.amounts;
}

interface Opening {
  readonly currency: string;
  readonly initialBalance: Big;
}

interface Moving {
  readonly walletId: Id<Wallet>;
  readonly amount: Big;
}

interface Sending {
  readonly sourceId: ShardedId<Wallet>;
  readonly amount: Big;
}

/** The money that an action is to move: in a currency, or in that of a wallet. */
type Money = { readonly amount: Big } & ({ readonly currency: string } | { readonly walletId: Id<Wallet> });

/**
 * The maximum amounts that may be moved at once, by currency; a currency without one has none. They are parts of the policies of
 * actions, which throw InvalidAmountError `invalid-amount` when an amount is larger.
 */
export class AmountLimits {
  readonly #maximums: ReadonlyMap<string, Big>;
  readonly #wallets: Pick<Repository<Wallet>, 'getById'>;

  constructor(maximums: ReadonlyMap<string, Big>, wallets: Pick<Repository<Wallet>, 'getById'>) {
    this.#maximums = maximums;
    this.#wallets = wallets;
  }

  /** A policy for opening a wallet, with the maximum for its first balance. */
  opening<Params>(policy: ActionPolicy<Params>): ActionPolicy<Params & Opening> {
    return this.#after(policy, ({ currency, initialBalance }: Opening) => ({
      currency,
      amount: initialBalance,
    }));
  }

  /** A policy for putting money into a wallet and taking it out, with the maximum. */
  moving<Params>(policy: ActionPolicy<Params>): ActionPolicy<Params & Moving> {
    return this.#after(policy, (params: Moving) => params);
  }

  /** A policy for sending money from a wallet, with the maximum. */
  sending<Params>(policy: ActionPolicy<Params>): ActionPolicy<Params & Sending> {
    return this.#after(policy, ({ sourceId, amount }: Sending) => ({ walletId: sourceId, amount }));
  }

  /** The amount is checked after the principal, who otherwise could learn the currency of somebody else's wallet. */
  #after<Params, WithMoney>(
    policy: ActionPolicy<Params>,
    moneyIn: (params: WithMoney) => Money,
  ): ActionPolicy<Params & WithMoney> {
    if (this.#maximums.size === 0) return policy;
    return {
      authorize: async (request) => {
        await policy.authorize(request);
        await this.#assertWithin(moneyIn(request.params));
      },
    };
  }

  async #assertWithin(money: Money): Promise<void> {
    const { currency } = 'currency' in money ? money : await this.#wallets.getById(money.walletId);
    const maximum = this.#maximums.get(currency);
    if (maximum === undefined || money.amount.lte(maximum)) return;
    throw new InvalidAmountError(`At most ${maximum.toFixed()} ${currency} may be moved at once`);
  }
}
