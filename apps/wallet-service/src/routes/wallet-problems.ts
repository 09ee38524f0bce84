import { type ProblemKind, frameworkProblems } from '@framework/http';

import type { WalletErrorCode } from '../wallet/wallet-error.js';

/** The problems of wallets and transfers, with their statuses: those of the wallet's rules, and what the framework's are about here. */
export const walletProblems = {
  'invalid-amount': { status: 422, title: 'The amount is not acceptable' },
  'unknown-currency': { status: 422, title: 'The currency is unknown' },
  'currency-mismatch': { status: 422, title: 'The wallets hold different currencies' },
  'same-wallet': { status: 422, title: 'Source and destination are the same' },
  'insufficient-funds': { status: 422, title: 'The balance does not cover the amount' },
  'wallet-closed': { status: 409, title: 'The wallet is closed' },
  'precondition-failed': frameworkProblems['precondition-failed'],
  'wallet-not-found': { status: 404, title: 'The wallet does not exist' },
  'transfer-not-found': { status: 404, title: 'The transfer does not exist' },
  'stale-record': {
    ...frameworkProblems['stale-record'],
    detail: 'Other requests kept changing the wallet at the same time. Nothing was written; try again.',
  },
  'outcome-unknown': {
    ...frameworkProblems['outcome-unknown'],
    detail:
      'The connection was lost while the change was being committed. Repeat the request with the same Idempotency-Key; without a key, read the wallet first.',
  },
} as const satisfies Readonly<Record<WalletErrorCode, ProblemKind>> & Readonly<Record<string, ProblemKind>>;
