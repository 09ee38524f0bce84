import { InvalidCursorError, type ShardIdentifier } from '@framework/core';
import {
  type InvariantStep,
  type InvariantViolation,
  type OperatorFailure,
  type OperatorInvariant,
  type ViewPage,
  failureOf,
  readPages,
} from '@framework/operator';
import { sql } from 'drizzle-orm';

import { TransferDecision } from '../transfer/transfer-decision.js';
import type { Transfer } from '../transfer/transfer.js';
import type { OperatedTables } from './operated-tables.js';

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** A violation without its shards. */
type Found = Pick<InvariantViolation, 'id' | 'text'>;

/** A wallet, and what the log says about it: nothing if its events were dropped. */
interface BalanceRow extends Record<string, unknown> {
  readonly id: string;
  readonly version: string;
  readonly balance: string;
  readonly logged_version: string | null;
  readonly logged_balance: string | null;
  readonly is_negative: boolean;
  readonly differs: boolean | null;
}

/**
 * Every wallet has the balance and the version of its newest events, and owes nothing. Events from before the database adopted the shard say
 * nothing: if the shard was in another database meanwhile, newer ones are in that one's log.
 */
export function walletBalances({ databases, wallets }: OperatedTables): OperatorInvariant {
  return {
    name: 'wallet-balances',
    summary: 'Every wallet has the balance and the version of its newest events, and no balance is negative',
    check: async ({ limit, after }) => {
      let examinedCount = 0;
      const page = await readPages(databases.deliveries(), after, async ({ shards: [shard] }, place) => {
        if (shard === undefined) return { items: [], next: undefined };
        if (place !== undefined && !uuid.test(place)) throw new InvalidCursorError(place);
        const { rows } = await wallets.db(shard).execute<BalanceRow>(sql`
          select w.id, w.version::text, trim_scale(w.balance)::text as balance, newest.version::text as logged_version,
            trim_scale(money.balance)::text as logged_balance, w.balance < 0 as is_negative, w.balance <> money.balance as differs
          from (select *, ('x' || substr(id::text, 20, 4))::bit(16)::integer & 16383 as shard
            from wallets where ${place ?? null}::uuid is null or id > ${place ?? null}::uuid
            order by id limit ${limit}) w
          left join eventlog.shards s on (s.shard_group, s.shard_member) = (w.shard >> 6, w.shard & 63)
          left join lateral (
            select e.model_version as version, e.created_date from eventlog.events e
            where e.model_id = w.id::text order by e.model_version desc, e.ordinal desc limit 1) newest
            on newest.created_date >= coalesce(s.adopted_date, '-infinity')
          left join lateral (
            select coalesce(e.payload ->> 'newBalance', e.payload ->> 'initialBalance', e.payload ->> 'balance')::numeric as balance,
              e.created_date
            from eventlog.events e
            where e.model_id = w.id::text
              and e.event_type in ('WalletCreatedEvent', 'WalletMoneyDepositedEvent', 'WalletMoneyWithdrawnEvent')
            order by e.model_version desc, e.ordinal desc limit 1) money
            on money.created_date >= coalesce(s.adopted_date, '-infinity')
          order by w.id`);
        examinedCount += rows.length;
        return { items: rows.flatMap(balanceViolations), next: nextOf(rows, limit) };
      });
      return { ...page, examinedCount };
    },
  };
}

function balanceViolations(row: BalanceRow): readonly Found[] {
  const { id, version, balance, logged_version: loggedVersion, logged_balance: loggedBalance } = row;
  const texts = [
    ...(row.is_negative ? [`Wallet ${id} has the negative balance ${balance}.`] : []),
    ...(loggedVersion !== null && loggedVersion !== version
      ? [`Wallet ${id} has version ${version}, but its newest event is of version ${loggedVersion}.`]
      : []),
    ...(row.differs === true
      ? [`Wallet ${id} has the balance ${balance}, but its newest event says ${loggedBalance ?? ''}.`]
      : []),
  ];
  return texts.map((text) => ({ id, text }));
}

/** Every transfer that has ended was decided by its destination, and ended as decided. */
export function transfersDecided({ databases, transfers, decisions }: OperatedTables): OperatorInvariant {
  return {
    name: 'transfers-decided',
    summary: 'Every transfer that has ended did so as its destination decided, for the same amount',
    check: (page) =>
      checkPairs(databases.shards, page, {
        // All of them, as no index leaves others out.
        read: (shard, limit, after) => transfers.findPage({ shard, limit, after }),
        hasOther: ({ state }) => state !== 'INITIATED',
        otherShard: ({ destId }) => destId.resolveShardIdentifier(),
        others: async (ended) => {
          const ids = ended.map(({ id, destId }) => TransferDecision.idOf({ transferId: id, destId }));
          const found = await decisions.findAllByIds(ids);
          return new Map(found.map((decision) => [decision.transferId.value, decision]));
        },
        violation: (transfer, decision) => endedOtherwise(transfer, decision),
      }),
  };
}

/** Every decision is about a transfer that was sent, and the transfer did not end otherwise. */
export function decisionsJustified({ databases, transfers, decisions }: OperatedTables): OperatorInvariant {
  return {
    name: 'decisions-justified',
    summary: 'Every decision about a transfer is about money that was sent, and no transfer ended otherwise',
    check: (page) =>
      checkPairs(databases.shards, page, {
        read: (shard, limit, after) => decisions.findPage({ shard, limit, after }),
        hasOther: () => true,
        otherShard: ({ transferId }) => transferId.resolveShardIdentifier(),
        others: async (decided) => {
          const found = await transfers.findAllByIds(decided.map(({ transferId }) => transferId));
          const byId = new Map(found.map((transfer) => [transfer.id.value, transfer]));
          return new Map(
            decided.flatMap(({ id, transferId }) => {
              const transfer = byId.get(transferId.value);
              return transfer === undefined ? [] : [[id.value, transfer] as const];
            }),
          );
        },
        violation: (decision, transfer) => {
          if (transfer === undefined)
            return `Decision ${decision.id.value} is ${decision.state}, but transfer ${decision.transferId.value} does not exist.`;
          return transfer.state === 'INITIATED' ? undefined : endedOtherwise(transfer, decision);
        },
      }),
  };
}

function endedOtherwise(transfer: Transfer, decision: TransferDecision | undefined): string | undefined {
  const { id, state, amount, currency } = transfer;
  // Before decisions were recorded, a transfer could be refunded without one.
  if (decision === undefined)
    return state === 'COMPLETED'
      ? `Transfer ${id.value} is COMPLETED, but its destination has not decided.`
      : undefined;
  const expected = decision.state === 'RECEIVED' ? 'COMPLETED' : 'REFUNDED';
  if (state !== expected)
    return `Transfer ${id.value} is ${state}, but its destination decided ${decision.state}.`;
  if (!amount.eq(decision.amount) || currency !== decision.currency)
    return `Transfer ${id.value} is over ${amount.toFixed()} ${currency}, but its destination decided about ${decision.amount.toFixed()} ${decision.currency}.`;
  return undefined;
}

/** Models on one shard that are compared with others, which may lie on another shard. */
interface Pairs<Model extends { readonly id: { readonly value: string } }, Other> {
  readonly read: (
    shard: ShardIdentifier,
    limit: number,
    after: string | undefined,
  ) => Promise<{ readonly items: readonly Model[]; readonly next: string | undefined }>;
  /** Whether a model is compared with another one. */
  readonly hasOther: (model: Model) => boolean;
  readonly otherShard: (model: Model) => ShardIdentifier;
  /** The others of models, by the id of the model. All lie on one shard. */
  readonly others: (models: readonly Model[]) => Promise<ReadonlyMap<string, Other>>;
  readonly violation: (model: Model, other: Other | undefined) => string | undefined;
}

/** Compares one page of each shard. A shard that does not answer is a failure, and nothing is said about the models that need it. */
async function checkPairs<Model extends { readonly id: { readonly value: string } }, Other>(
  shards: readonly ShardIdentifier[],
  { limit, after }: ViewPage,
  pairs: Pairs<Model, Other>,
): Promise<InvariantStep> {
  let examinedCount = 0;
  const failures: OperatorFailure[] = [];
  const sources = shards.map((shard) => ({ shard, shards: [shard] }));
  const page = await readPages(sources, after, async ({ shard }, place) => {
    const { items, next } = await pairs.read(shard, limit, place);
    const found: Found[] = [];
    const compared = items.filter(pairs.hasOther);
    examinedCount += items.length - compared.length;
    for (const [otherShard, models] of Map.groupBy(compared, pairs.otherShard)) {
      try {
        const others = await pairs.others(models);
        for (const model of models) {
          const text = pairs.violation(model, others.get(model.id.value));
          if (text !== undefined) found.push({ id: model.id.value, text });
        }
        examinedCount += models.length;
      } catch (error) {
        failures.push(failureOf([otherShard], error));
      }
    }
    return { items: found, next };
  });
  return { ...page, failures: [...page.failures, ...failures], examinedCount };
}

/** Where the check continues behind a full page. */
function nextOf(rows: readonly BalanceRow[], limit: number): string | undefined {
  return rows.length < limit ? undefined : rows.at(-1)?.id;
}
